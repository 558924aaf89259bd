#include "volume/spill_memory.hpp"

#include <algorithm>
#include <sys/mman.h>

namespace rawduck {

SpillMemory::SpillMemory(uint64_t bytes_max)
    : units_max_(bytes_max / UNIT_SIZE), free_(Unit{0}, Unit{units_max_}),
      memory_(nullptr, Unmap{units_max_ * UNIT_SIZE}) {}

void SpillMemory::Unmap::operator()(char *memory) const {
    munmap(memory, bytes);
}

char *SpillMemory::Take(uint64_t length) {
    const uint64_t units = AlignUp(length, UNIT_SIZE) / UNIT_SIZE;
    if (free_.LargestFree() < units) {
        return nullptr;
    }
    if (!memory_) {
        void *mapped = mmap(nullptr, units_max_ * UNIT_SIZE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) {
            return nullptr;
        }
        memory_.reset(static_cast<char *>(mapped));
    }
    shrink_ = false;
    const Allocator::Result taken = free_.Allocate(units, Unit{units_max_}, false, 0);
    held_units_ = std::max(held_units_, Index(taken.start + units));
    return memory_.get() + ToBytes(taken.start);
}

void SpillMemory::Give(char *data, uint64_t length) {
    free_.Free(Unit{static_cast<uint64_t>(data - memory_.get()) / UNIT_SIZE},
               AlignUp(length, UNIT_SIZE) / UNIT_SIZE);
    GiveToSystemWhenIdle();
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
