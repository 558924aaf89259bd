//! Little-endian numbers, as in NVMe data structures.
#pragma once

#include <cstdint>

namespace rawduck {

//! Of `count` bytes, at most 8.
inline uint64_t ReadLittleEndian(const uint8_t *bytes, int count) {
    uint64_t value = 0;
    for (int i = count - 1; i >= 0; i--) {
        value = value << 8 | bytes[i];
    }
    return value;
}

} // namespace rawduck
