//! What files share, and what a file is given before it changes something that it shares.

#include "common/invariant.hpp"
#include "volume/catalog/catalog_tree.hpp"
#include "volume/tree/extent_tree.hpp"

namespace rawduck {

void CatalogTree::ShareTree(const TreeRoot &root) {
    if (root.levels > 0) {
        reference_changes_.Add(root.page.unit, TREE_PAGE_UNITS);
    }
}

//! Returns whether the page is shared and the file is to have a copy of it, which refers to the same. `extents`: what its
//! leaves hold lies on the device.
bool CatalogTree::OwnPage(const Tree::Located &place, const TreePage &page, bool extents) {
    if (!reference_changes_.IsShared(place.page) || !copied_pages_.insert(place.page.unit).second) {
        return false;
    }
    if (page.Level() > 0) {
        for (uint16_t slot = 0; slot < page.Count(); slot++) {
            reference_changes_.Add(page.Child(slot).unit, TREE_PAGE_UNITS);
        }
    } else if (extents) {
        for (const Extent &extent : ExtentTree::ExtentsOf(page)) {
            reference_changes_.Add(extent.start, extent.units);
        }
    }
    std::vector<Extent> gone;
    reference_changes_.Remove(place.page.unit, TREE_PAGE_UNITS, gone);
    RAWDUCK_INVARIANT(gone.empty(), "others refer to a shared page");
    return true;
}

// From the root down: what a page refers to is shared once the page has a copy.
void CatalogTree::OwnExtents(const SharedEntry &entry, uint64_t from, const std::optional<uint64_t> &to) {
    if (!entry->extents.empty() || references_.Empty()) {
        return;
    }
    ExtentTree(store_, entry->extents_root)
        .VisitPages(from, to, [&](const Tree::Located &place, const TreePage &page) {
            if (OwnPage(place, page, true)) {
                steps_.emplace_back([this, entry, key = place.key, depth = place.depth] {
                    ListsOf(*entry).CopyExtentPage(key, depth);
                });
            }
            return true;
        });
}

// All of them: a list of holes is compared with what is to be there, wherever they lie.
void CatalogTree::OwnHoles(const SharedEntry &entry) {
    if (references_.Empty()) {
        return;
    }
    Tree(store_, entry->holes_root)
        .VisitPages("", std::nullopt, [&](const Tree::Located &place, const TreePage &page) {
            if (OwnPage(place, page, false)) {
                steps_.emplace_back([this, entry, key = place.key, depth = place.depth] {
                    ListsOf(*entry).CopyHolePage(key, depth);
                });
            }
            return true;
        });
}

//! For a file that is removed. Returns the pages that nobody refers to any more; what others share is not looked at.
std::vector<PagePointer> CatalogTree::LeaveTrees(const FileEntry &entry, std::vector<Extent> &gone) {
    std::vector<PagePointer> pages;
    std::vector<Extent> nothing;
    const auto leave = [&](const Tree::Located &place, const TreePage &page, bool extents) {
        if (reference_changes_.IsShared(place.page)) {
            reference_changes_.Remove(place.page.unit, TREE_PAGE_UNITS, nothing);
            return false;
        }
        pages.push_back(place.page);
        if (page.Level() == 0 && extents) {
            for (const Extent &extent : ExtentTree::ExtentsOf(page)) {
                reference_changes_.Remove(extent.start, extent.units, gone);
            }
        }
        return true;
    };
    for (const Extent &extent : entry.extents) {
        reference_changes_.Remove(extent.start, extent.units, gone);
    }
    if (entry.extents.empty()) {
        Tree(store_, entry.extents_root)
            .VisitPages("", std::nullopt, [&](const Tree::Located &place, const TreePage &page) {
                return leave(place, page, true);
            });
    }
    Tree(store_, entry.holes_root)
        .VisitPages("", std::nullopt, [&](const Tree::Located &place, const TreePage &page) {
            return leave(place, page, false);
        });
    return pages;
}

} // namespace rawduck
