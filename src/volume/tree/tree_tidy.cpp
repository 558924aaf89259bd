#include "volume/tree/tree.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"

#include <new>

namespace rawduck {

namespace {

//! A page with less than a quarter is merged with one beside it if both fill at most three quarters.
constexpr uint32_t SPARSE_BYTES = TreePage::ROOM_BYTES / 4;
constexpr uint32_t MERGED_BYTES_MAX = TreePage::ROOM_BYTES / 4 * 3;

} // namespace

// After a change that left a page with less; the pages of the path are writable. What cannot be done for want of
// memory, or because a page beside cannot be read, costs room and nothing else. Empty pages need neither.
void Tree::Tidy(std::vector<Step> &path) noexcept {
    const size_t levels = path.size();
    for (size_t depth = DropEmptyPages(path); depth-- > 1;) {
        try {
            if (!MergeWithSibling(path[depth - 1], static_cast<uint16_t>(levels - depth))) {
                break;
            }
        } catch (const std::bad_alloc &) {
            break;
        } catch (const Error &) {
            break; // whoever reads that page is told
        }
    }
    ShrinkRoot();
}

// Returns how many steps of the path are left.
size_t Tree::DropEmptyPages(std::vector<Step> &path) {
    for (size_t depth = path.size(); depth-- > 0;) {
        const uint16_t level = static_cast<uint16_t>(path.size() - 1 - depth);
        if (store_.Writable(path[depth].page, level).Count() > 0) {
            return depth + 1;
        }
        store_.Drop(path[depth].page);
        if (depth > 0) {
            TreePage parent = store_.Writable(path[depth - 1].page, static_cast<uint16_t>(level + 1));
            RemoveChild(parent, path[depth - 1].slot);
        }
    }
    root_ = TreeRoot();
    return 0;
}

// Whoever follows takes over the keys from its lower bound on.
void Tree::RemoveChild(TreePage &parent, uint16_t slot) {
    if (slot == 0 && parent.Count() > 1) {
        parent.SetChild(0, parent.Child(1));
        slot = 1;
    }
    parent.Erase(slot);
}

// `parent`: the page above the one that may be sparse, which has the level. Returns whether they were merged.
bool Tree::MergeWithSibling(Step &parent_step, uint16_t level) {
    TreePage parent = store_.Writable(parent_step.page, level);
    const uint16_t below = static_cast<uint16_t>(level - 1);
    const uint16_t slot = parent_step.slot;
    const uint32_t used = store_.Read(parent.Child(slot), below)->Page().UsedBytes();
    if (used >= SPARSE_BYTES || parent.Count() < 2) {
        return false;
    }
    const uint16_t left_slot = slot > 0 ? static_cast<uint16_t>(slot - 1) : slot;
    const uint16_t right_slot = static_cast<uint16_t>(left_slot + 1);
    const PagePointer right_place = parent.Child(right_slot);
    PagePointer left_place = parent.Child(left_slot);
    const PageStore::ReadPage right = store_.Read(right_place, below);
    if (store_.Read(left_place, below)->Page().UsedBytes() + right->Page().UsedBytes() > MERGED_BYTES_MAX) {
        return false;
    }
    TreePage left = store_.Writable(left_place, below);
    parent.SetChild(left_slot, left_place);
    if (below > 0) {
        left.Insert(left.Count(), parent.Key(right_slot), right->Page().Value(0));
    }
    left.AppendFrom(right->Page(), below > 0 ? 1 : 0, right->Page().Count());
    store_.Drop(right_place);
    parent.Erase(right_slot);
    return true;
}

// A root with one child is not needed.
void Tree::ShrinkRoot() {
    while (root_.levels > 1) {
        const TreePage root = store_.Writable(root_.page, static_cast<uint16_t>(root_.levels - 1));
        if (root.Count() > 1) {
            return;
        }
        const PagePointer child = root.Child(0);
        store_.Drop(root_.page);
        root_.page = child;
        root_.levels--;
    }
}

std::vector<std::string>
Tree::FindProblems(const std::function<void(const PagePointer &)> &visit_page) const {
    std::vector<std::string> problems;
    if (root_.levels > TREE_LEVELS_MAX || (root_.levels == 0) != (root_.page.unit == 0)) {
        return {"a metadata tree has an impossible number of levels"};
    }
    if (root_.levels > 0) {
        FindPageProblems(root_.page, static_cast<uint16_t>(root_.levels - 1), Bounds(), visit_page, problems);
    }
    return problems;
}

// The first key of a page above the leaves stands for the lowest.
bool Tree::Bounds::Hold(const TreePage &page) const {
    const uint16_t first = page.Level() > 0 ? 1 : 0;
    if (first >= page.Count()) {
        return true;
    }
    return page.Key(first) >= low && (!high || page.Key(page.LastSlot()) < *high);
}

void Tree::FindPageProblems(const PagePointer &place, uint16_t level, const Bounds &bounds,
                            const std::function<void(const PagePointer &)> &visit_page,
                            std::vector<std::string> &problems) const {
    visit_page(place);
    PageStore::ReadPage read;
    try {
        read = store_.Read(place, level);
    } catch (const Error &error) {
        problems.emplace_back(error.what());
        return;
    }
    const TreePage page = read->Page();
    const auto complain = [&](const char *what) {
        problems.push_back("metadata page at allocation unit " + std::to_string(place.unit) + ": " + what);
    };
    if (page.Count() == 0) {
        complain("it is empty");
        return;
    }
    if (!bounds.Hold(page)) {
        complain("it has keys that are looked for elsewhere");
        return;
    }
    for (uint16_t slot = 0; level > 0 && slot < page.Count(); slot++) {
        Bounds below = bounds;
        if (slot > 0) {
            below.low = std::string(page.Key(slot));
        }
        if (slot < page.LastSlot()) {
            below.high = std::string(page.Key(static_cast<uint16_t>(slot + 1)));
        }
        FindPageProblems(page.Child(slot), static_cast<uint16_t>(level - 1), below, visit_page, problems);
    }
}

} // namespace rawduck
