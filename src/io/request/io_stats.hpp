//! Counters of one target: what was asked of the device and how long it took. Thread-safe, never blocking.
//!
//! Everything is counted through IoStats::Count, whatever does the I/O, so that nothing is asked of a device
//! without a request and nothing fails without an error.
#pragma once

#include "common/clock.hpp"
#include "io/request/placement.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

namespace rawduck {

enum class IoOperation : uint8_t { READ, WRITE, FLUSH, DEALLOCATE };
constexpr int IO_OPERATION_COUNT = 4;
const char *IoOperationName(IoOperation operation);

//! Latencies in logarithmic buckets of 12.5 % width, so a percentile is known to within one bucket.
class LatencyHistogram {
  public:
    void Record(uint64_t nanoseconds);
    //! Upper bound in nanoseconds of the bucket that holds the given quantile (0..1), but never more than
    //! MaxNs; 0 when empty.
    uint64_t Quantile(double quantile) const;
    uint64_t MaxNs() const { return max_ns_.load(std::memory_order_relaxed); }
    struct Bucket {
        uint64_t upper_ns, count;
    };
    //! Those that are not empty, in order.
    std::vector<Bucket> Buckets() const;
    void Reset();

  private:
    static constexpr int SUB_BUCKETS = 8;
    static constexpr int BUCKETS = 64 * SUB_BUCKETS;
    std::array<std::atomic<uint64_t>, BUCKETS> counts_{};
    std::atomic<uint64_t> max_ns_{0};
};

//! A copy of one operation's counters.
struct IoCounters {
    uint64_t requests = 0;     //!< calls from above
    uint64_t errors = 0;       //!< of those, how many failed
    uint64_t commands = 0;     //!< commands to the device, retries included
    uint64_t fua_commands = 0; //!< of those, with Force Unit Access
    uint64_t bytes = 0;        //!< transferred
    uint64_t bounce_bytes = 0; //!< of those, copied through an aligned buffer
    uint64_t depth_sum = 0; //!< commands in flight on the queue, summed over submissions: / commands = mean
    uint64_t depth_max = 0;
    uint64_t latency_p50_ns = 0, latency_p99_ns = 0, latency_max_ns = 0; //!< of commands
};

class IoRequest;

class IoStats {
  public:
    //! Runs `work(request)`, which tells the IoRequest what it does, as one request. When it throws, that is
    //! counted as an error and passed on. Returns what it returns.
    template <typename Work> auto Count(IoOperation operation, Work &&work);
    //! Bytes that were read or written of a class.
    uint64_t OfClass(IoOperation operation, PlacementClass placement_class) const;
    std::vector<LatencyHistogram::Bucket> Latencies(IoOperation operation) const;
    IoCounters Snapshot(IoOperation operation) const;
    void Reset();

  private:
    friend class IoRequest;
    struct Slot {
        std::atomic<uint64_t> requests{0}, errors{0}, commands{0}, fua_commands{0}, bytes{0}, bounce_bytes{0},
            depth_sum{0}, depth_max{0};
        std::array<std::atomic<uint64_t>, PLACEMENT_CLASS_COUNT> of_class{};
        LatencyHistogram latency;
    };
    std::array<Slot, IO_OPERATION_COUNT> slots_;
};

//! A request that is being made. Used by one thread. What it counts is added when it ends, so that threads seldom
//! write to the same memory.
class IoRequest {
  public:
    ~IoRequest();
    IoRequest(const IoRequest &) = delete;
    IoRequest &operator=(const IoRequest &) = delete;

    //! One command completed, or failed: `depth` counts those
    //! in flight on its queue at submission, itself included.
    void AddCommand(uint64_t bytes, uint64_t depth, uint64_t latency_ns);
    //! A command that was counted had Force Unit Access set.
    void AddFua();
    //! Of the bytes of a command, those that were copied through an aligned buffer.
    void AddBounce(uint64_t bytes);
    //! Bytes that were moved for a class, whether or not the device can place them.
    void AddOfClass(PlacementClass placement_class, uint64_t bytes);
    //! Runs a command that has no queue: `command()` returns the bytes that it has moved.
    template <typename Command> uint64_t RunCommand(Command &&command);
    //! For a request that fails without an exception.
    void Fail();
    IoOperation Operation() const { return operation_; }

  private:
    friend class IoStats;
    IoRequest(IoStats &stats, IoOperation operation);

    IoStats::Slot &slot_;
    const IoOperation operation_;
    bool failed_ = false;
    uint64_t commands_ = 0, fua_commands_ = 0, bytes_ = 0, bounce_bytes_ = 0;
    uint64_t depth_sum_ = 0, depth_max_ = 0;
};

template <typename Work> auto IoStats::Count(IoOperation operation, Work &&work) {
    IoRequest request(*this, operation);
    try {
        return std::forward<Work>(work)(request);
    } catch (...) {
        request.Fail();
        throw;
    }
}

template <typename Command> uint64_t IoRequest::RunCommand(Command &&command) {
    const uint64_t started_ns = MonotonicNs();
    uint64_t bytes = 0;
    try {
        bytes = std::forward<Command>(command)();
    } catch (...) {
        AddCommand(0, 1, MonotonicNs() - started_ns);
        throw;
    }
    AddCommand(bytes, 1, MonotonicNs() - started_ns);
    return bytes;
}

} // namespace rawduck
