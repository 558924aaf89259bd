//! The clock of latencies.
#pragma once

#include <cstdint>
#include <ctime>

namespace rawduck {

inline uint64_t MonotonicNs() {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

} // namespace rawduck
