//! Which units of a range are free, such as that of the memory for spilled blocks.
#pragma once

#include "volume/format/record.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace rawduck {

//! Not thread-safe. All operations are logarithmic in the number of free extents.
class Allocator {
  public:
    struct Result {
        AllocationUnit start{0};
        uint64_t units = 0;
    };
    //! Everything in [begin, end) is free at first.
    Allocator(AllocationUnit begin, AllocationUnit end);

    //! Takes [start, start + units) out of the free space. False when any of it is not free.
    bool Claim(AllocationUnit start, uint64_t units);

    //! One extent of between 1 and `wanted` units; `units` 0 when no more than `keep_free` units are free.
    //! Tries, in order: to continue at `hint`, the lowest (or with `from_the_end`, the highest) free extent
    //! that is large enough, the largest there is.
    Result Allocate(uint64_t wanted, AllocationUnit hint, bool from_the_end, uint64_t keep_free);

    //! Gives units back; they must have been allocated. False when any of them is free already.
    bool Free(AllocationUnit start, uint64_t units);

    uint64_t FreeUnits() const { return free_units_; }
    uint64_t LargestFree() const;
    uint64_t TotalUnits() const { return total_units_; }

  private:
    void Insert(uint64_t start, uint64_t units);
    void Erase(std::map<uint64_t, uint64_t>::iterator entry);
    //! Lets a free extent be another one, in the same place of the order. Needs no memory.
    void Change(std::map<uint64_t, uint64_t>::iterator entry, uint64_t start, uint64_t units);
    Result Take(std::map<uint64_t, uint64_t>::iterator entry, uint64_t start, uint64_t units);

    std::map<uint64_t, uint64_t> by_start_;            //!< start -> units
    std::set<std::pair<uint64_t, uint64_t>> by_units_; //!< (units, start)
    uint64_t begin_, end_, free_units_ = 0, total_units_ = 0;
};

} // namespace rawduck
