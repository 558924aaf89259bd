//! Counters of the requests of this process to Ceph, per pool and operation, kept for the
//! life of the process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rawduck_ceph {

enum class RadosOperation { READ, WRITE, STAT, LIST, REMOVE, EXEC };
constexpr int RADOS_OPERATION_COUNT = 6;

const char *RadosOperationName(RadosOperation operation);

//! Counters of one pool. Thread-safe.
class RadosStats {
  public:
    struct Counters {
        std::atomic<uint64_t> requests{0}; //!< sent to OSDs, including failed ones
        std::atomic<uint64_t> bytes{0};    //!< read or written; for EXEC, of the replies
        std::atomic<uint64_t> errors{0};
    };

    Counters &Of(RadosOperation operation) { return counters_[static_cast<size_t>(operation)]; }
    //! Counts a finished request; `code` is negative when it failed.
    void Count(RadosOperation operation, int code, uint64_t bytes);
    void Reset();

  private:
    std::array<Counters, RADOS_OPERATION_COUNT> counters_;
};

struct PoolStats {
    std::string cluster; //!< its UUID
    std::string pool;
    std::shared_ptr<RadosStats> stats;
};

//! The counters of a pool, shared by all connections to it.
std::shared_ptr<RadosStats> RadosStatsFor(const std::string &cluster, const std::string &pool);
std::vector<PoolStats> AllRadosStats();

} // namespace rawduck_ceph
