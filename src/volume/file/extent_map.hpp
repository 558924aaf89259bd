//! Where the bytes of one file lie: extents in file order that cover the file from its start without a gap.
#pragma once

#include "volume/format/record.hpp"

#include <map>
#include <vector>

namespace rawduck {

//! Not thread-safe. Every call costs the logarithm of the number of extents, and what it hands out. Extents
//! that continue each other, in the file and on the target, are one.
class ExtentMap {
  public:
    //! Adds units behind the end.
    void Append(AllocationUnit start, uint64_t units);
    //! Gives up everything from file unit `units` on; returns the pieces that were cut off.
    std::vector<Extent> Truncate(uint64_t units);
    //! Maps a range of file units, which the map covers, to new places, in pieces that continue each other in
    //! the file. All or nothing.
    void Remap(const std::vector<Extent> &moved);

    //! Device offset of a byte, and how many bytes from there are contiguous. The offset must be covered.
    uint64_t Locate(uint64_t file_offset, uint64_t &contiguous) const;

    //! The extent that covers a file unit, whole. The unit must be covered.
    Extent At(uint64_t unit) const;
    //! The pieces of the file units [from, to), clipped.
    std::vector<Extent> Slice(uint64_t from, uint64_t to) const;

    uint64_t Units() const { return units_; }
    size_t Count() const { return places_.size(); }
    //! The unit behind the last extent on the target: where growing contiguously would continue.
    AllocationUnit End() const;
    //! All of them, copied.
    std::vector<Extent> Extents() const { return Slice(0, units_); }

  private:
    struct Place {
        uint64_t start = 0; //!< on the target
        uint64_t units = 0;
    };
    using Places = std::map<uint64_t, Place>;

    Places::const_iterator Find(uint64_t file_unit) const;
    Places::iterator SplitAt(uint64_t file_unit);
    bool JoinWithNext(Places::iterator place);
    bool CoversWithoutGap() const;

    Places places_; //!< by the first file unit
    uint64_t units_ = 0;
};

} // namespace rawduck
