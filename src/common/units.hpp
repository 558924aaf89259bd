//! Units shared by every layer. Offsets and lengths are bytes unless the name says otherwise.
#pragma once

#include <cstdint>

namespace rawduck {

constexpr uint64_t KIB = 1024;
constexpr uint64_t MIB = 1024 * KIB;
constexpr uint64_t GIB = 1024 * MIB;

//! A page of memory. Buffers that start at a multiple of it can be transferred to and from every device.
constexpr uint64_t PAGE_BYTES = 4096;

//! Space is allocated in units of 4096 bytes, whatever the LBA size (512 or 4096) of the target. Elsewhere,
//! names that end in `units` count allocation units.
constexpr uint64_t ALLOCATION_UNIT_BYTES = 4096;

//! Number of an allocation unit on the target: byte offset / ALLOCATION_UNIT_BYTES. A strong type, so that it
//! is never mistaken for a byte offset or an LBA.
enum class AllocationUnit : uint64_t {};

constexpr uint64_t Index(AllocationUnit unit) {
    return static_cast<uint64_t>(unit);
}
constexpr uint64_t ToBytes(AllocationUnit unit) {
    return static_cast<uint64_t>(unit) * ALLOCATION_UNIT_BYTES;
}
constexpr AllocationUnit operator+(AllocationUnit unit, uint64_t units) {
    return static_cast<AllocationUnit>(static_cast<uint64_t>(unit) + units);
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
constexpr uint64_t DivideUp(uint64_t value, uint64_t by) {
    return (value + by - 1) / by;
}
constexpr bool IsAligned(uint64_t value, uint64_t alignment) {
    return (value & (alignment - 1)) == 0;
}

} // namespace rawduck
