//! Where the bytes of one file lie: extents in file order that cover the file from its start without a gap.
#pragma once

#include "volume/format/record.hpp"

#include <vector>

namespace rawduck {

//! Not thread-safe.
class ExtentMap {
  public:
    //! Adds units behind the end; merges with the last extent where they continue it on the target.
    void Append(Unit start, uint64_t units);
    //! Gives up everything from file unit `units` on; returns the pieces that were cut off.
    std::vector<Extent> Truncate(uint64_t units);
    //! Lets a range of file units, which the map covers, lie elsewhere; returns the pieces where it was.
    std::vector<Extent> Remap(const Extent &moved);

    //! Device offset of a byte, and how many bytes from there are contiguous. The offset must be covered.
    //! Constant time for files that grew in extents of similar or growing size.
    uint64_t Locate(uint64_t file_offset, uint64_t &contiguous) const;

    //! The pieces of the file units [from, to), clipped.
    std::vector<Extent> Slice(uint64_t from, uint64_t to) const;

    uint64_t Units() const { return units_; }
    //! The unit behind the last extent on the target: where growing contiguously would continue.
    Unit End() const;
    const std::vector<Extent> &Extents() const { return extents_; }

  private:
    size_t Find(uint64_t file_unit) const;
    void Reindex();

    std::vector<Extent> extents_;
    uint64_t units_ = 0;
    //! For each slot of 2^slot_shift_ file units: the extent that holds its first unit.
    std::vector<uint32_t> slots_;
    uint32_t slot_shift_ = 0;
};

} // namespace rawduck
