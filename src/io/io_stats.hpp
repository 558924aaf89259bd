//! Counters of one target: what was asked of the device and how long it took. Thread-safe, never blocking.
#pragma once

#include "io/placement.hpp"

#include <array>
#include <atomic>
#include <cstdint>

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

class IoStats {
  public:
    void AddRequest(IoOperation operation);
    void AddError(IoOperation operation);
    //! One command completed: `depth` counts those in flight on its queue at submission, itself included.
    void AddCommand(IoOperation operation, uint64_t bytes, uint64_t depth, uint64_t latency_ns);
    //! A command that was counted had Force Unit Access set.
    void AddFua(IoOperation operation);
    //! Of the bytes of a command, those that were copied through an aligned buffer.
    void AddBounce(IoOperation operation, uint64_t bytes);
    //! Bytes that were written for a class, whether or not the device can place them.
    void AddPlaced(PlacementClass placement_class, uint64_t bytes);
    uint64_t Placed(PlacementClass placement_class) const;
    IoCounters Snapshot(IoOperation operation) const;
    void Reset();

  private:
    struct Slot {
        std::atomic<uint64_t> requests{0}, errors{0}, commands{0}, fua_commands{0}, bytes{0}, bounce_bytes{0},
            depth_sum{0}, depth_max{0};
        LatencyHistogram latency;
    };
    std::array<Slot, IO_OPERATION_COUNT> slots_;
    std::array<std::atomic<uint64_t>, PLACEMENT_CLASS_COUNT> placed_{};
};

} // namespace rawduck
