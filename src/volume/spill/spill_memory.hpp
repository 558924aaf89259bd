//! The memory of a SpillBuffer: one range, whose pages stay once they were touched, where the heap would give
//! memory of blocks back to the system and fault it in again.
#pragma once

#include "common/memory/huge_memory.hpp"
#include "volume/space/allocator.hpp"

#include <memory>

namespace rawduck {

//! Not thread-safe.
class SpillMemory {
  public:
    explicit SpillMemory(uint64_t bytes_max);

    //! Memory for that many bytes, aligned to ALLOCATION_UNIT_BYTES, with undefined contents; null when there
    //! is no range that long, or the system has none.
    char *Take(uint64_t length);
    //! Gives back what Take returned for that length. Where the system has no memory to note it, it is used
    //! again once nothing is taken.
    void Give(char *data, uint64_t length) noexcept;
    //! The system gets the memory back as soon as nothing of it is taken.
    void Shrink();
    //! Bytes up to the end of the highest that was taken since the memory was given back, in huge pages.
    uint64_t HeldBytes() const;

  private:
    void WhenIdle() noexcept;

    const uint64_t units_max_;
    Allocator free_;
    std::unique_ptr<HugeMemory> memory_; //!< made by the first Take
    uint64_t taken_units_ = 0, held_units_ = 0;
    bool shrink_ = false;
};

} // namespace rawduck
