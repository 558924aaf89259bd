//! Units shared by every layer. Offsets and lengths are bytes unless the name says otherwise.
#pragma once

#include <cstdint>

namespace rawduck {

constexpr uint64_t KIB = 1024;
constexpr uint64_t MIB = 1024 * KIB;
constexpr uint64_t GIB = 1024 * MIB;

//! Space is allocated in units of 4096 bytes, whatever the LBA size (512 or 4096) of the target.
constexpr uint64_t UNIT_SIZE = 4096;

//! Index of an allocation unit on the target: byte offset / UNIT_SIZE. A strong type, so that it is never
//! mistaken for a byte offset or an LBA.
enum class Unit : uint64_t {};

constexpr uint64_t Index(Unit unit) {
    return static_cast<uint64_t>(unit);
}
constexpr uint64_t ToBytes(Unit unit) {
    return static_cast<uint64_t>(unit) * UNIT_SIZE;
}
constexpr Unit operator+(Unit unit, uint64_t units) {
    return static_cast<Unit>(static_cast<uint64_t>(unit) + units);
}

//! Placement identifier of a write (NVMe flexible data placement); NONE leaves the choice to the device.
enum class PlacementId : uint16_t { NONE = 0xFFFF };

//! `value` rounded to a multiple of `alignment`, a power of two.
constexpr uint64_t AlignDown(uint64_t value, uint64_t alignment) {
    return value & ~(alignment - 1);
}
constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
    return AlignDown(value + alignment - 1, alignment);
}
constexpr bool IsAligned(uint64_t value, uint64_t alignment) {
    return (value & (alignment - 1)) == 0;
}

} // namespace rawduck
