//! rawduck-osd-helper: runs the queries of the object class, one for each host. The object class starts it;
//! it may also be started by hand or as a unit (docs/CEPH.md).
#include "ceph/helper/supervisor/supervisor.hpp"
#include "ceph/helper/worker/worker.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>

namespace rawduck_ceph {
namespace {

constexpr uint32_t WORKERS = 2;

uint64_t FromEnvironment(const char *name, uint64_t default_value) {
    const char *text = std::getenv(name);
    const uint64_t value = text ? std::strtoull(text, nullptr, 10) : 0;
    return value > 0 ? value : default_value;
}

//! 0 for "0" alone: no reply is kept.
uint64_t CacheBytes(uint64_t default_bytes) {
    const char *text = std::getenv("RAWDUCK_CLASS_CACHE_MB");
    const bool is_off = text && std::strcmp(text, "0") == 0;
    return is_off ? 0 : FromEnvironment("RAWDUCK_CLASS_CACHE_MB", default_bytes >> 20) << 20;
}

//! Not more workers than processors: more would only wait for each other.
uint32_t WorkerCount() {
    const uint32_t processors = std::max(std::thread::hardware_concurrency(), 1u);
    return static_cast<uint32_t>(
        std::min<uint64_t>(FromEnvironment("RAWDUCK_CLASS_RUNNING", WORKERS), processors));
}

void WorkerMain(int socket) {
    prctl(PR_SET_NAME, "rawduck-worker");
    WorkerLimits limits;
    limits.runner.memory_bytes =
        (FromEnvironment("RAWDUCK_CLASS_MEMORY_MB", limits.runner.memory_bytes * WORKERS >> 20) << 20) /
        WorkerCount();
    try {
        RunWorker(socket, limits);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "rawduck-osd-helper: a worker: %s\n", error.what());
        _exit(1);
    }
    _exit(0);
}

int Main(int count, char **arguments) {
    SupervisorOptions options;
    for (int i = 1; i < count; i++) {
        if (std::strncmp(arguments[i], "--socket-dir=", 13) == 0) {
            options.directory = arguments[i] + 13;
        } else if (std::strcmp(arguments[i], "--end-when-unused") == 0) {
            options.end_when_unused = true;
        } else {
            options.directory.clear();
            break;
        }
    }
    if (options.directory.empty()) {
        std::fprintf(stderr, "usage: rawduck-osd-helper --socket-dir=DIR [--end-when-unused]\n"
                             "Runs the queries of Ceph's object class rawduck (docs/CEPH.md of rawduck).\n"
                             "DIR: the OSDs' RAWDUCK_HELPER_DIR.\n");
        return 2;
    }
    options.jobs.workers = WorkerCount();
    options.cache_bytes_max = CacheBytes(options.cache_bytes_max);
    try {
        Supervisor supervisor(options, WorkerMain);
        if (supervisor.Listen()) { // else another helper serves this directory
            supervisor.Serve();
        }
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "rawduck-osd-helper: %s\n", error.what());
        return 1;
    }
}

} // namespace
} // namespace rawduck_ceph

int main(int count, char **arguments) {
    return rawduck_ceph::Main(count, arguments);
}
