#include "ceph/rados/pool/rados_stats.hpp"

#include <map>
#include <mutex>

namespace rawduck_ceph {
namespace {

struct StatsRegistry {
    std::mutex mutex; //!< guards pools; no other lock is taken while it is held
    std::map<std::pair<std::string, std::string>, std::shared_ptr<RadosStats>> pools;
};

StatsRegistry &RegistryOfProcess() {
    static auto &registry = *new StatsRegistry; // never destroyed: exit handlers may close connections
    return registry;
}

} // namespace

const char *RadosOperationName(RadosOperation operation) {
    switch (operation) {
    case RadosOperation::READ:
        return "read";
    case RadosOperation::WRITE:
        return "write";
    case RadosOperation::STAT:
        return "stat";
    case RadosOperation::LIST:
        return "list";
    case RadosOperation::REMOVE:
        return "remove";
    case RadosOperation::EXEC:
        return "exec";
    }
    return "unknown";
}

void RadosStats::Count(RadosOperation operation, int code, uint64_t bytes) {
    auto &counters = Of(operation);
    counters.requests++;
    if (code < 0) {
        counters.errors++;
    } else {
        counters.bytes += bytes;
    }
}

void RadosStats::Reset() {
    for (auto &counters : counters_) {
        counters.requests = 0;
        counters.bytes = 0;
        counters.errors = 0;
    }
}

std::shared_ptr<RadosStats> RadosStatsFor(const std::string &cluster, const std::string &pool) {
    auto &registry = RegistryOfProcess();
    std::lock_guard<std::mutex> guard(registry.mutex);
    auto &stats = registry.pools[{cluster, pool}];
    if (!stats) {
        stats = std::make_shared<RadosStats>();
    }
    return stats;
}

std::vector<PoolStats> AllRadosStats() {
    auto &registry = RegistryOfProcess();
    std::lock_guard<std::mutex> guard(registry.mutex);
    std::vector<PoolStats> result;
    for (auto &entry : registry.pools) {
        result.push_back({entry.first.first, entry.first.second, entry.second});
    }
    return result;
}

} // namespace rawduck_ceph
