#include "volume/spill/spill_memory.hpp"

#include "common/invariant.hpp"

#include <algorithm>
#include <new>

namespace rawduck {

SpillMemory::SpillMemory(uint64_t bytes_max)
    : units_max_(bytes_max / ALLOCATION_UNIT_BYTES), free_(AllocationUnit{0}, AllocationUnit{units_max_}) {}

char *SpillMemory::Take(uint64_t length) {
    const uint64_t units = AlignUp(length, ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES;
    if (free_.LargestFree() < units) {
        return nullptr;
    }
    Allocator::Result taken;
    try {
        if (!memory_) {
            memory_ = std::make_unique<HugeMemory>(units_max_ * ALLOCATION_UNIT_BYTES);
        }
        taken = free_.Allocate(units, AllocationUnit{units_max_}, false, 0);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
    shrink_ = false;
    taken_units_ += units;
    held_units_ = std::max(held_units_, Index(taken.start + units));
    return memory_->Data() + ToBytes(taken.start);
}

void SpillMemory::Give(char *data, uint64_t length) noexcept {
    const auto offset = static_cast<uint64_t>(data - memory_->Data());
    const uint64_t units = AlignUp(length, ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES;
    RAWDUCK_INVARIANT(IsAligned(offset, ALLOCATION_UNIT_BYTES) &&
                          offset / ALLOCATION_UNIT_BYTES + units <= units_max_ && units <= taken_units_,
                      "what is given back was taken from here");
    taken_units_ -= units;
    try {
        const bool free = free_.Free(AllocationUnit{offset / ALLOCATION_UNIT_BYTES}, units);
        RAWDUCK_INVARIANT(free, "memory of spilled blocks is given back once");
    } catch (const std::bad_alloc &) {
        // It stays out of use until WhenIdle starts anew.
    }
    WhenIdle();
}

uint64_t SpillMemory::HeldBytes() const {
    const uint64_t held = held_units_ * ALLOCATION_UNIT_BYTES;
    const uint64_t in_huge_pages = AlignDown(units_max_ * ALLOCATION_UNIT_BYTES, HugeMemory::HUGE_PAGE_BYTES);
    return held <= in_huge_pages ? AlignUp(held, HugeMemory::HUGE_PAGE_BYTES) : held;
}

void SpillMemory::Shrink() {
    shrink_ = true;
    WhenIdle();
}

void SpillMemory::WhenIdle() noexcept {
    if (taken_units_ > 0) {
        return;
    }
    if (free_.FreeUnits() != units_max_) {
        try {
            free_ = Allocator(AllocationUnit{0}, AllocationUnit{units_max_});
        } catch (const std::bad_alloc &) {
            return; // the next time
        }
    }
    if (shrink_) {
        memory_.reset();
        held_units_ = 0;
    }
}

} // namespace rawduck
