#include "volume/spill_memory.hpp"

#include "common/invariant.hpp"

#include <algorithm>
#include <new>

namespace rawduck {

SpillMemory::SpillMemory(uint64_t bytes_max)
    : units_max_(bytes_max / UNIT_SIZE), free_(Unit{0}, Unit{units_max_}) {}

char *SpillMemory::Take(uint64_t length) {
    const uint64_t units = AlignUp(length, UNIT_SIZE) / UNIT_SIZE;
    if (free_.LargestFree() < units) {
        return nullptr;
    }
    if (!memory_) {
        try {
            memory_ = std::make_unique<HugeMemory>(units_max_ * UNIT_SIZE);
        } catch (const std::bad_alloc &) {
            return nullptr;
        }
    }
    shrink_ = false;
    const Allocator::Result taken = free_.Allocate(units, Unit{units_max_}, false, 0);
    held_units_ = std::max(held_units_, Index(taken.start + units));
    return memory_->Data() + ToBytes(taken.start);
}

void SpillMemory::Give(char *data, uint64_t length) {
    const Unit start{static_cast<uint64_t>(data - memory_->Data()) / UNIT_SIZE};
    const bool given = free_.Free(start, AlignUp(length, UNIT_SIZE) / UNIT_SIZE);
    RAWDUCK_INVARIANT(given, "memory of a spilled block is given back once");
    GiveToSystemWhenIdle();
}

uint64_t SpillMemory::HeldBytes() const {
    const uint64_t held = held_units_ * UNIT_SIZE;
    const uint64_t in_huge_pages = AlignDown(units_max_ * UNIT_SIZE, HugeMemory::PAGE_BYTES);
    return held <= in_huge_pages ? AlignUp(held, HugeMemory::PAGE_BYTES) : held;
}

void SpillMemory::Shrink() {
    shrink_ = true;
    GiveToSystemWhenIdle();
}

void SpillMemory::GiveToSystemWhenIdle() {
    if (shrink_ && free_.FreeUnits() == units_max_) {
        memory_.reset();
        held_units_ = 0;
    }
}

} // namespace rawduck
