//! The clocks: wall time as it is stored and shown, monotonic time for latencies, processor time.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace rawduck {

//! Nanoseconds by a clock of clock_gettime(2).
inline uint64_t ReadClockNs(clockid_t clock) {
    timespec now = {};
    clock_gettime(clock, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

//! Microseconds since 1970-01-01 UTC.
inline int64_t NowUs() {
    using namespace std::chrono;
    return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

//! Nanoseconds since some moment in the past; never goes back.
inline uint64_t MonotonicNs() {
    return ReadClockNs(CLOCK_MONOTONIC);
}

//! Nanoseconds of processor time of this thread.
inline uint64_t ThreadCpuNs() {
    return ReadClockNs(CLOCK_THREAD_CPUTIME_ID);
}

} // namespace rawduck
