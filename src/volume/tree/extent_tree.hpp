//! Where a file's bytes are, as a metadata tree: the counterpart of ExtentMap on the device.
#pragma once

#include "volume/format/record.hpp"
#include "volume/tree/tree.hpp"

#include <vector>

namespace rawduck {

//! Extents that cover the file from its start without a gap; those that continue each other are one. The mutex of
//! the store guards it, and reading throws, as with Tree. A change that throws may be made in part: made again, it
//! is whole.
class ExtentTree {
  public:
    //! `references`: as for Tree.
    ExtentTree(PageStore &store, const TreeRoot &root, const ReferenceTree *references = nullptr)
        : tree_(store, root, references) {}

    //! Allocation units that are covered.
    uint64_t Units() const;
    bool HasAtMost(size_t extents) const;
    //! What covers [from, to), clipped to it, in order.
    std::vector<Extent> Slice(uint64_t from, uint64_t to) const;

    //! The extent begins where the file ends; or, made again, is what is there.
    void Append(const Extent &extent);
    //! These allocation units, which are covered, lie there now.
    void Remap(const Extent &moved);
    //! Gives up what lies behind.
    void Truncate(uint64_t units);
    //! Gives up all.
    void Clear() { tree_.Clear(); }

    //! Calls `visit` with the pages that changing [from, to) may change, as Tree::VisitPages; without `to`, everything
    //! from there on.
    void VisitPages(uint64_t from, const std::optional<uint64_t> &to, const Tree::VisitLocated &visit) const;
    //! As that of Tree.
    void CopyPage(std::string_view key, uint16_t depth) { tree_.CopyPage(key, depth); }
    //! The extents of a page of such a tree that is a leaf. Throws Error CORRUPT.
    static std::vector<Extent> ExtentsOf(const TreePage &leaf);

    const TreeRoot &Root() const { return tree_.Root(); }
    //! As that of Tree; also gaps, overlaps, and extents that continue each other.
    std::vector<std::string> FindProblems(const std::function<void(const PagePointer &)> &visit_page) const;
    //! The same; where `visit_page` returns false it does not look below the page. Calls `visit` with the extents in the
    //! pages that it has looked at. `all`: what all extents are added to, in order; whole when there is no problem.
    std::vector<std::string> FindProblems(const Tree::LookBelow &visit_page,
                                          const std::function<void(const Extent &)> &visit,
                                          std::vector<Extent> &all) const;

  private:
    std::optional<Extent> FindBefore(uint64_t file_unit) const;
    void Put(const Extent &extent);
    void Erase(uint64_t file_unit);
    void ClearRange(uint64_t begin, uint64_t end);
    void JoinWithNeighbours(Extent extent);

    Tree tree_;
};

} // namespace rawduck
