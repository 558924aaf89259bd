#include "ceph/pushdown/feedback/processor_quota.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <mutex>
#include <sstream>
#include <string>

namespace rawduck_ceph {

namespace {

constexpr double NO_LIMIT = std::numeric_limits<double>::infinity();
constexpr std::chrono::seconds VALID_FOR{10};

//! The first two numbers of these files. A file that is not there, or says "max" or -1, is no limit.
double QuotaOf(const std::string &quota_file, const std::string &period_file) {
    double quota = 0, period = 0;
    std::ifstream file(quota_file);
    if (!(file >> quota) || quota <= 0) {
        return NO_LIMIT;
    }
    std::ifstream second(period_file);
    const bool has_period = period_file == quota_file ? bool(file >> period) : bool(second >> period);
    return has_period && period > 0 ? quota / period : NO_LIMIT;
}

//! Of a group and those above it, such as /a/b, /a and the root.
template <class QUOTA_OF> double SmallestAbove(std::string group, QUOTA_OF quota_of) {
    double smallest = NO_LIMIT;
    for (;;) {
        smallest = std::min(smallest, quota_of(group == "/" ? "" : group));
        const size_t end = group.rfind('/');
        if (end == std::string::npos || group.size() <= 1) {
            return smallest;
        }
        group.resize(std::max<size_t>(end, 1));
    }
}

//! A line of /proc/self/cgroup: number:controllers:group.
double QuotaOfLine(const std::string &line) {
    std::istringstream parts(line);
    std::string number, controllers, group;
    std::getline(std::getline(std::getline(parts, number, ':'), controllers, ':'), group);
    if (controllers.empty()) {
        return SmallestAbove(group, [](const std::string &path) {
            const std::string file = "/sys/fs/cgroup" + path + "/cpu.max";
            return QuotaOf(file, file);
        });
    }
    if (("," + controllers + ",").find(",cpu,") == std::string::npos) {
        return NO_LIMIT;
    }
    return SmallestAbove(group, [&](const std::string &path) {
        const std::string folder = "/sys/fs/cgroup/" + controllers + path;
        return QuotaOf(folder + "/cpu.cfs_quota_us", folder + "/cpu.cfs_period_us");
    });
}

double ReadQuota() {
    std::ifstream groups("/proc/self/cgroup");
    double smallest = NO_LIMIT;
    for (std::string line; std::getline(groups, line);) {
        smallest = std::min(smallest, QuotaOfLine(line));
    }
    return smallest;
}

} // namespace

double ProcessorQuota() {
    using Clock = std::chrono::steady_clock;
    static std::mutex &mutex = *new std::mutex; // no other lock is taken while it is held
    static Clock::time_point read_at;
    static double quota = NO_LIMIT;
    std::lock_guard<std::mutex> lock(mutex);
    if (read_at == Clock::time_point() || Clock::now() - read_at > VALID_FOR) {
        quota = ReadQuota();
        read_at = Clock::now();
    }
    return quota;
}

} // namespace rawduck_ceph
