//! Wall clock time as it is stored and shown.
#pragma once

#include <chrono>
#include <cstdint>

namespace rawduck {

//! Microseconds since 1970-01-01 UTC.
inline int64_t NowUs() {
    using namespace std::chrono;
    return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

} // namespace rawduck
