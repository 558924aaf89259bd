//! A metadata tree: ordered keys with values, in pages of a PageStore (a copy-on-write B+ tree).
#pragma once

#include "volume/tree/page_store.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rawduck {

//! Where a tree is, as whoever refers to it stores it.
struct TreeRoot {
    PagePointer page;    //!< unit 0: the tree is empty
    uint32_t levels = 0; //!< 0 when the tree is empty, 1 when it is one leaf
    uint32_t reserved = 0;
};
static_assert(sizeof(TreeRoot) == 24, "layout is part of the format");

//! Whether there can be such a tree: what is read from a device must be before it is used.
inline bool IsSane(const TreeRoot &root) {
    return root.levels <= TREE_LEVELS_MAX && (root.levels == 0) == (root.page.unit == 0);
}

class ReferenceTree;

//! The mutex of its store guards it: shared for what is const, exclusive for the rest. Keys are compared byte by
//! byte. Reading throws what PageStore::Read throws. A change that throws has changed nothing that the tree holds.
class Tree {
  public:
    //! The tree that lies there. `references`: of a tree that may share pages with others; these are not changed, but for
    //! what CopyPage has given copies.
    Tree(PageStore &store, const TreeRoot &root, const ReferenceTree *references = nullptr)
        : store_(store), root_(root), references_(references) {}

    std::optional<std::string> Find(std::string_view key) const;
    //! Calls `visit` with each key from `from` on and its value, in order, until it returns false.
    using Visit = std::function<bool(std::string_view key, std::string_view value)>;
    void Scan(std::string_view from, const Visit &visit) const;
    //! The last entry whose key is not greater.
    struct Entry {
        std::string key, value;
    };
    std::optional<Entry> FindAtOrBefore(std::string_view key) const;

    //! Adds the key, or gives it another value. Key and value have at most TREE_ENTRY_BYTES_MAX bytes together,
    //! and the key at least one.
    void Put(std::string_view key, std::string_view value);
    //! Whether the key was there.
    bool Erase(std::string_view key);
    //! Gives up all pages, none of which is shared. The tree is empty afterwards.
    void Clear();

    //! A page, and how to find it again: `depth` pages lie above it on the way to the key.
    struct Located {
        PagePointer page;
        std::string key;
        uint16_t depth = 0;
    };
    //! Calls `visit` with the pages on which keys from `from` to `to` are or belong (those above before those below,
    //! all without `to`), and for each that it returns true for with those below it.
    using VisitLocated = std::function<bool(const Located &place, const TreePage &page)>;
    void VisitPages(std::string_view from, const std::optional<std::string> &to,
                    const VisitLocated &visit) const;
    //! Gives this tree a copy of a page that others refer to, too. None of those above it is shared.
    void CopyPage(std::string_view key, uint16_t depth);

    //! Changes with each change of the tree.
    const TreeRoot &Root() const { return root_; }

    //! Everything that is wrong with the tree, and calls `visit_page` for each of its pages. Keys that are not
    //! where they are looked for, pages that cannot be read, more levels than there can be.
    std::vector<std::string> FindProblems(const std::function<void(const PagePointer &)> &visit_page) const;
    //! The same; where `visit_page` returns false it does not look below the page. Calls `visit`, whose result does not
    //! count, with what lies in the pages that it has looked at.
    using LookBelow = std::function<bool(const PagePointer &)>;
    std::vector<std::string> FindProblems(const LookBelow &visit_page, const Visit &visit) const;
    //! Calls `visit`, whose result does not count, with what lies in the pages that can be read and are sound. Returns
    //! what is wrong with the others.
    std::vector<std::string> ScanReadable(const Visit &visit) const;

  private:
    //! One page on the way from the root to a leaf.
    struct Step {
        PagePointer page;
        uint16_t slot = 0; //!< of the child that the way goes on to
    };
    std::vector<Step> PathTo(std::string_view key) const;
    TreePage MakePathWritable(std::vector<Step> &path);
    void Split(std::vector<Step> &path, size_t depth, uint16_t slot, std::string_view key,
               std::string_view value);
    void GrowRoot(const PagePointer &left, std::string_view key, const PagePointer &right);
    void Tidy(std::vector<Step> &path) noexcept;
    void MergeSparsePages(std::vector<Step> &path, size_t steps);
    bool MergeWithNext(Step &parent, int slot, uint16_t level);
    bool IsShared(const PagePointer &page) const;
    void RemoveChild(TreePage &parent, uint16_t slot);
    size_t DropEmptyPages(std::vector<Step> &path);
    void ShrinkRoot();
    bool ScanPage(const PagePointer &page, uint16_t level, std::string_view from, const Visit &visit) const;
    void VisitPage(const Located &place, uint16_t level, std::string_view from,
                   const std::optional<std::string> &to, const VisitLocated &visit) const;
    void CollectPages(const PagePointer &page, uint16_t level, std::vector<PagePointer> &pages) const;
    struct Bounds {
        std::string low;                 //!< no key is lower
        std::optional<std::string> high; //!< every key is lower
        bool Hold(const TreePage &page) const;
    };
    struct Examination {
        const LookBelow &visit_page;
        const Visit &visit;
        std::vector<std::string> problems;
    };
    void Examine(Examination &examination) const;
    void ExaminePage(const PagePointer &page, uint16_t level, const Bounds &bounds,
                     Examination &examination) const;

    PageStore &store_;
    TreeRoot root_;
    const ReferenceTree *references_;
};

} // namespace rawduck
