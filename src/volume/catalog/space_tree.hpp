//! Which allocation units files cover, durably: what a mount knows of free space without reading the files. In
//! two metadata trees: bitmaps of groups, and a summary of each group, so that a mount reads only those.
//!
//! Pages of metadata trees are not in it (PageSpace has them), nor is what open files have reserved.
#pragma once

#include "volume/catalog/space_map.hpp"
#include "volume/format/record.hpp"
#include "volume/tree/tree.hpp"

#include <vector>

namespace rawduck {

//! The mutex of the store guards it: shared for what is const, exclusive for the rest. Reading throws what
//! PageStore::Read throws. A change that throws may be made in part: made again, it is whole.
class SpaceTree {
  public:
    SpaceTree(PageStore &store, const TreeRoot &maps, const TreeRoot &summaries, const SpaceMap::Area &area)
        : maps_(store, maps), summaries_(store, summaries), area_(area) {}

    //! The range lies in the area.
    bool Contains(const Extent &extent) const;
    bool AllFree(const Extent &extent) const;
    bool AllUsed(const Extent &extent) const;
    //! The range is in use from now on, or no longer.
    void Set(const Extent &extent, bool used);
    //! The area ends there from now on, not before its end until now. What it gains is free. When it throws, the area is
    //! the old one.
    void Grow(uint64_t end);

    SpaceMap Map(uint64_t group) const;
    //! Of all groups of the area.
    std::vector<GroupSummary> Summaries() const;

    const TreeRoot &MapsRoot() const { return maps_.Root(); }
    const TreeRoot &SummariesRoot() const { return summaries_.Root(); }

    //! As that of Tree; also summaries that are not those of the bitmaps.
    std::vector<std::string> FindProblems(const std::function<void(const PagePointer &)> &visit_page) const;

  private:
    //! The part of an extent that lies in one group.
    struct Piece {
        uint64_t group;
        uint32_t first, units;
    };
    template <class VISIT> bool ForEachPiece(const Extent &extent, const VISIT &visit) const;
    void Store(uint64_t group, const SpaceMap &map);
    void StoreSummary(uint64_t group, const GroupSummary &summary);
    std::vector<GroupSummary> Block(uint64_t block) const;
    void PutBlock(uint64_t block, const std::vector<GroupSummary> &summaries);

    Tree maps_, summaries_;
    SpaceMap::Area area_;
};

} // namespace rawduck
