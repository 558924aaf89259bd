#include "io/engine/ring/ring_workers.hpp"

#include "common/process/fork_generation.hpp"

#include <cstdint>
#include <optional>

namespace rawduck {

int LimitRingWorkers(io_uring &ring) {
    unsigned workers[2] = {1, 0}; // for work that ends soon, and, left as it is, for other work
    return -io_uring_register_iowq_max_workers(&ring, workers);
}

void LimitRingWorkersOfThisThread() {
    thread_local std::optional<uint64_t> limited_in;
    if (limited_in == ForkGeneration()) {
        return;
    }
    io_uring ring = {};
    if (io_uring_queue_init(1, &ring, 0) != 0) {
        return;
    }
    if (LimitRingWorkers(ring) == 0) {
        limited_in = ForkGeneration();
    }
    io_uring_queue_exit(&ring);
}

} // namespace rawduck
