//! How many refer to what lies on the device, where it is more than one: to a page of a metadata tree, or to a piece of
//! an extent. Files that share contents share them.
#pragma once

#include "volume/format/record.hpp"
#include "volume/tree/tree.hpp"
#include "volume/tree/unit_counts.hpp"

#include <vector>

namespace rawduck {

//! Allocation units from `start` on, and how many refer to each.
struct ReferencedUnits {
    uint64_t start = 0, units = 0, references = 0;
};

//! A metadata tree with ranges of allocation units, which do not overlap, as keys. Units that are in no range and in use
//! have one reference. The mutex of the store guards it, and reading throws, as with Tree. A change that throws may be
//! made in part: made again, it is whole.
class ReferenceTree {
  public:
    ReferenceTree(PageStore &store, const TreeRoot &root) : tree_(store, root) {}

    //! The first units of [start, end), which is not empty, that have equally many references.
    ReferencedUnits First(uint64_t start, uint64_t end) const;
    bool IsShared(const PagePointer &page) const;
    //! Whether nothing is shared.
    bool Empty() const { return tree_.Root().levels == 0; }

    void Set(const ReferencedUnits &range);

    const TreeRoot &Root() const { return tree_.Root(); }
    //! As that of Tree; also ranges that overlap, or that are not shared, or that continue each other.
    std::vector<std::string> FindProblems(const std::function<void(const PagePointer &)> &visit_page) const;
    //! Calls `visit` with each range, in order.
    void Scan(const std::function<void(const ReferencedUnits &)> &visit) const;

  private:
    std::optional<ReferencedUnits> FindBefore(uint64_t unit) const;
    void Put(const ReferencedUnits &range);
    void Erase(uint64_t start);

    Tree tree_;
};

//! Changes to a tree of references before they are made, so that all that is read for them, and all that can be wrong,
//! comes before the first. Not thread-safe; reading throws as with Tree. What throws is not used any more.
class ReferenceChanges {
  public:
    explicit ReferenceChanges(const ReferenceTree &tree) : tree_(tree) {}

    bool IsShared(const PagePointer &page) const;
    //! Somebody refers to the range, which is in use, besides those who do.
    void Add(uint64_t start, uint64_t units);
    //! One of those refers to it no longer. Adds what nobody refers to any more to `gone`.
    void Remove(uint64_t start, uint64_t units, std::vector<Extent> &gone);

    //! What the tree has to be told: in any order, and again where it was interrupted. Nothing is changed afterwards.
    std::vector<ReferencedUnits> Take();
    //! Nothing is changed.
    void Clear() { changed_.Clear(); }

  private:
    ReferencedUnits First(uint64_t start, uint64_t end) const;

    const ReferenceTree &tree_;
    UnitCounts changed_; //!< how many refer to what was changed
};

} // namespace rawduck
