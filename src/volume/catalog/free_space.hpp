//! Which allocation units can be given to files, as groups: known from the summaries, and in detail only for groups
//! that something was taken from or given back to since the mount. What it costs to begin with does not depend on
//! how many files and extents there are.
#pragma once

#include "volume/catalog/space_map.hpp"
#include "volume/format/record.hpp"

#include <functional>
#include <unordered_map>
#include <vector>

namespace rawduck {

//! Not thread-safe. Extents of up to GROUP_UNITS do not cross the boundary of a group, but for those that continue
//! at a hint.
//!
//! A group is read from the durable metadata when it is first needed. What a record frees there may be used only
//! when the record is durable; so it is read before the record is applied to the metadata (Load).
class FreeSpace {
  public:
    //! Which units of a group are in use in the durable metadata. May throw Error.
    using ReadGroup = std::function<SpaceMap(uint64_t group)>;

    FreeSpace(const SpaceMap::Area &area, const std::vector<GroupSummary> &summaries, ReadGroup read_group);

    //! One extent of between 1 and `wanted` units; `units` 0 when no more than `keep_free` units are free. Tries, in
    //! order: to continue at `hint`, the lowest (or with `from_the_end`, the highest) free extent of a group that is
    //! large enough, one of the largest there are. Throws what ReadGroup throws; then nothing has changed.
    Extent Allocate(uint64_t wanted, uint64_t hint, bool from_the_end, uint64_t keep_free);
    //! The first of so many units, a power of two, at the highest multiple of it that can be; 0 when there are none. Throws as Allocate.
    uint64_t AllocateAligned(uint32_t units);

    //! Takes [start, start + units) out of the free space. False when any of it is not free. Throws as Allocate.
    bool Claim(uint64_t start, uint64_t units);
    //! Gives units back; their groups are loaded: they were allocated, or Load was called. False when any of them
    //! is free already.
    bool Free(uint64_t start, uint64_t units) noexcept;
    //! Reads the groups of an extent. Throws what ReadGroup throws.
    void Load(const Extent &extent);
    //! The parts of [start, start + units) that are free, in order. Throws as Allocate.
    std::vector<Extent> FreeParts(uint64_t start, uint64_t units);

    uint64_t FreeUnits() const { return free_units_; }
    //! Inside a group.
    uint64_t LargestFree() const { return longest_[1]; }
    uint64_t TotalUnits() const { return area_.end - area_.start; }
    uint64_t LoadedGroups() const { return loaded_.size(); }

  private:
    bool IsInside(uint64_t start, uint64_t units) const;
    SpaceMap &Group(uint64_t group);
    uint64_t FindGroup(uint64_t longest_min, bool from_the_end) const;
    Extent TakeAt(uint64_t start, uint64_t wanted);
    void SetUsed(uint64_t start, uint64_t units, bool used);
    void SetLongest(uint64_t group, uint16_t longest);
    template <class VISIT> bool ForEachPiece(uint64_t start, uint64_t units, const VISIT &visit) const;

    const SpaceMap::Area area_;
    const ReadGroup read_group_;
    std::unordered_map<uint64_t, SpaceMap> loaded_;
    std::vector<uint16_t> free_in_group_;
    //! The longest free run of each group, as the leaves of a binary tree of maxima: the children of i are 2 i and
    //! 2 i + 1.
    std::vector<uint16_t> longest_;
    uint64_t leaves_ = 1;
    uint64_t free_units_ = 0;
};

} // namespace rawduck
