#include "volume/tree/tree.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "volume/tree/reference_tree.hpp"

#include <new>

namespace rawduck {

namespace {

//! A page with less than this is merged with either of those beside it, if both fill at most the second.
constexpr uint32_t SPARSE_BYTES = TreePage::ROOM_BYTES / 8 * 3;
constexpr uint32_t MERGED_BYTES_MAX = TreePage::ROOM_BYTES / 4 * 3;

} // namespace

// After a change that left a page with less; the pages of the path are writable. What cannot be done for want of
// memory, or because a page beside or below cannot be read, costs room and nothing else. Empty pages need neither.
void Tree::Tidy(std::vector<Step> &path) noexcept {
    const size_t steps = DropEmptyPages(path);
    try {
        MergeSparsePages(path, steps);
        ShrinkRoot();
    } catch (const std::bad_alloc &) {
        return;
    } catch (const Error &) {
        return; // whoever reads that page is told
    }
}

void Tree::MergeSparsePages(std::vector<Step> &path, size_t steps) {
    const size_t levels = path.size();
    for (size_t depth = steps; depth-- > 1;) {
        Step &parent = path[depth - 1];
        const uint16_t level = static_cast<uint16_t>(levels - depth);
        if (store_.Read(path[depth].page, static_cast<uint16_t>(level - 1))->Page().UsedBytes() >=
            SPARSE_BYTES) {
            return;
        }
        const bool merged = (parent.slot > 0 && MergeWithNext(parent, parent.slot - 1, level)) ||
                            MergeWithNext(parent, parent.slot, level);
        if (!merged) {
            return;
        }
    }
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

bool Tree::IsShared(const PagePointer &page) const {
    return references_ && references_->IsShared(page);
}

// `parent`: the page above them, which has the level. Returns whether they were merged. One that others refer to, too,
// stays as it is.
bool Tree::MergeWithNext(Step &parent_step, int slot, uint16_t level) {
    TreePage parent = store_.Writable(parent_step.page, level);
    const uint16_t below = static_cast<uint16_t>(level - 1);
    const auto left_slot = static_cast<uint16_t>(slot), right_slot = static_cast<uint16_t>(slot + 1);
    if (right_slot >= parent.Count()) {
        return false;
    }
    const PagePointer right_place = parent.Child(right_slot);
    PagePointer left_place = parent.Child(left_slot);
    if (IsShared(left_place) || IsShared(right_place)) {
        return false;
    }
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

// A root with one child is not needed. What lies below is only read: it may be that of others, too.
void Tree::ShrinkRoot() {
    while (root_.levels > 1) {
        const PageStore::ReadPage root = store_.Read(root_.page, static_cast<uint16_t>(root_.levels - 1));
        if (root->Page().Count() > 1 || IsShared(root_.page)) {
            return;
        }
        const PagePointer child = root->Page().Child(0);
        store_.Drop(root_.page);
        root_.page = child;
        root_.levels--;
    }
}

std::vector<std::string>
Tree::FindProblems(const std::function<void(const PagePointer &)> &visit_page) const {
    const LookBelow always = [&](const PagePointer &page) {
        visit_page(page);
        return true;
    };
    return FindProblems(always, [](std::string_view, std::string_view) { return true; });
}

std::vector<std::string> Tree::FindProblems(const LookBelow &visit_page, const Visit &visit) const {
    Examination examination{visit_page, visit, {}};
    Examine(examination);
    return examination.problems;
}

std::vector<std::string> Tree::ScanReadable(const Visit &visit) const {
    return FindProblems([](const PagePointer &) { return true; }, visit);
}

void Tree::Examine(Examination &examination) const {
    if (!IsSane(root_)) {
        examination.problems.emplace_back("a metadata tree has an impossible number of levels");
    } else if (root_.levels > 0) {
        ExaminePage(root_.page, static_cast<uint16_t>(root_.levels - 1), Bounds(), examination);
    }
}

// The first key of a page above the leaves stands for the lowest.
bool Tree::Bounds::Hold(const TreePage &page) const {
    const uint16_t first = page.Level() > 0 ? 1 : 0;
    if (first >= page.Count()) {
        return true;
    }
    return page.Key(first) >= low && (!high || page.Key(page.LastSlot()) < *high);
}

void Tree::ExaminePage(const PagePointer &place, uint16_t level, const Bounds &bounds,
                       Examination &examination) const {
    const bool looks_below = examination.visit_page(place);
    PageStore::ReadPage read;
    try {
        read = store_.Read(place, level);
    } catch (const Error &error) {
        examination.problems.emplace_back(error.what());
        return;
    }
    const TreePage page = read->Page();
    const bool holds = bounds.Hold(page);
    if (page.Count() == 0 || !holds) {
        examination.problems.push_back("metadata page at allocation unit " + std::to_string(place.unit) +
                                       ": it " +
                                       (holds ? "is empty" : "has keys that are looked for elsewhere"));
        return;
    }
    for (uint16_t slot = 0; looks_below && slot < page.Count(); slot++) {
        if (level == 0) {
            examination.visit(page.Key(slot), page.Value(slot));
            continue;
        }
        Bounds below = bounds;
        if (slot > 0) {
            below.low = std::string(page.Key(slot));
        }
        if (slot < page.LastSlot()) {
            below.high = std::string(page.Key(static_cast<uint16_t>(slot + 1)));
        }
        ExaminePage(page.Child(slot), static_cast<uint16_t>(level - 1), below, examination);
    }
}

} // namespace rawduck
