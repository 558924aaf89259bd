//! The clocks: wall time as it is stored and shown, and monotonic time for latencies.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace rawduck {

//! Microseconds since 1970-01-01 UTC.
inline int64_t NowUs() {
    using namespace std::chrono;
    return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

//! Nanoseconds since some moment in the past; never goes back.
inline uint64_t MonotonicNs() {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

} // namespace rawduck
