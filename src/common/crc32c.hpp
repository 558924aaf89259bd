//! CRC32C (Castagnoli), the checksum of everything rawduck writes for itself.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rawduck {

//! Extends `crc` (0 to start) over `length` bytes. Uses the CPU's instruction where there is one.
uint32_t Crc32c(uint32_t crc, const void *data, size_t length);

//! Whether it does.
bool Crc32cUsesInstruction();

//! The portable implementation; the test compares both.
uint32_t Crc32cPortable(uint32_t crc, const void *data, size_t length);

} // namespace rawduck
