//! Which allocation units can be given to files, in memory: a number for each group of which all is free or nothing, and
//! a bitmap for each of the others. What it costs to begin with does not depend on how many files and extents there are.
#pragma once

#include "volume/catalog/space_map.hpp"
#include "volume/format/record.hpp"

#include <functional>
#include <unordered_map>
#include <vector>

namespace rawduck {

//! Not thread-safe. Extents of up to GROUP_UNITS do not cross the boundary of a group, but for those that continue
//! at a hint. What changes something throws std::bad_alloc, and then nothing has changed.
class FreeSpace {
  public:
    //! Which units of a group are in use in the metadata. May throw Error.
    using ReadGroup = std::function<SpaceMap(uint64_t group)>;

    //! Reads the groups of which something is free, and not all. Throws what `read_group` throws.
    FreeSpace(const SpaceMap::Area &area, const std::vector<GroupSummary> &summaries,
              const ReadGroup &read_group);
    //! Of which nothing is in use.
    explicit FreeSpace(const SpaceMap::Area &area);

    //! One extent of between 1 and `wanted` units; `units` 0 when no more than `keep_free` units are free. Tries, in
    //! order: to continue at `hint`, the lowest (or with `from_the_end`, the highest) free extent of a group that is
    //! large enough, one of the largest that there are in a group.
    Extent Allocate(uint64_t wanted, uint64_t hint, bool from_the_end, uint64_t keep_free);
    //! The first of so many units, a power of two, at the highest multiple of it where they are free and `may_take`
    //! agrees, if it is given; 0 when there are none. Linear in the number of groups with so long an extent.
    using MayTake = std::function<bool(uint64_t start)>;
    uint64_t AllocateAligned(uint32_t units, const MayTake &may_take = nullptr);

    //! Takes [start, start + units) out of the free space. False when any of it is not free.
    bool Claim(uint64_t start, uint64_t units);
    //! Gives units back. False when any of them is free already.
    bool Free(uint64_t start, uint64_t units);
    //! The parts of [start, start + units) that are free, in order.
    std::vector<Extent> FreeParts(uint64_t start, uint64_t units) const;

    //! The area ends there from now on, not before its end until now, and what it gains is free.
    void Grow(uint64_t end);

    uint64_t FreeUnits() const { return free_units_; }
    //! Over the boundaries of groups. Linear in their number.
    uint64_t LargestFree() const;
    uint64_t TotalUnits() const { return area_.end - area_.start; }
    //! Of which something is free, and not all.
    uint64_t MixedGroups() const { return mixed_.size(); }

  private:
    bool IsInside(uint64_t start, uint64_t units) const;
    const SpaceMap *Mixed(uint64_t group) const;
    SpaceMap &Group(uint64_t group);
    bool IsUniform(uint64_t group) const;
    uint32_t FreeRunAt(uint64_t group, uint32_t first, uint32_t limit) const;
    uint32_t FreeRunAtEnd(uint64_t group) const;
    uint64_t FindGroup(uint64_t longest_min, bool from_the_end) const;
    uint64_t FindRun(uint64_t group, uint32_t units, bool from_the_end) const;
    Extent TakeAt(uint64_t start, uint64_t wanted);
    void SetUsed(uint64_t start, uint64_t units, bool used);
    void SetSummary(uint64_t group, const GroupSummary &summary);
    void MakeRoomForGroups();
    template <class VISIT> bool ForEachPiece(uint64_t start, uint64_t units, const VISIT &visit) const;

    SpaceMap::Area area_;
    std::unordered_map<uint64_t, SpaceMap> mixed_;
    std::vector<uint16_t> free_in_group_;
    //! The longest free run of each group, as the leaves of a binary tree of maxima: the children of i are 2 i and
    //! 2 i + 1.
    std::vector<uint16_t> longest_;
    uint64_t leaves_ = 1;
    uint64_t free_units_ = 0;
};

} // namespace rawduck
