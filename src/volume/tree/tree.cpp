#include "volume/tree/tree.hpp"

#include "common/invariant.hpp"

namespace rawduck {

namespace {

std::string_view Bytes(const PagePointer &page) {
    return {reinterpret_cast<const char *>(&page), sizeof page};
}

} // namespace

// From the root to the leaf where the key is or belongs.
std::vector<Tree::Step> Tree::PathTo(std::string_view key) const {
    std::vector<Step> path;
    path.reserve(root_.levels);
    PagePointer place = root_.page;
    for (uint32_t level = root_.levels; level-- > 0;) {
        Step step{place, 0};
        if (level > 0) {
            const PageStore::ReadPage page = store_.Read(place, static_cast<uint16_t>(level));
            step.slot = page->Page().ChildFor(key);
            place = page->Page().Child(step.slot);
        }
        path.push_back(step);
    }
    return path;
}

std::optional<std::string> Tree::Find(std::string_view key) const {
    if (root_.levels == 0) {
        return std::nullopt;
    }
    const PageStore::ReadPage leaf = store_.Read(PathTo(key).back().page, 0);
    const TreePage page = leaf->Page();
    const uint16_t slot = page.LowerBound(key);
    if (slot == page.Count() || page.Key(slot) != key) {
        return std::nullopt;
    }
    return std::string(page.Value(slot));
}

std::optional<Tree::Entry> Tree::FindAtOrBefore(std::string_view key) const {
    const std::vector<Step> path = root_.levels == 0 ? std::vector<Step>() : PathTo(key);
    if (path.empty()) {
        return std::nullopt;
    }
    const auto entry_of = [](const TreePage &page, uint16_t slot) {
        return Entry{std::string(page.Key(slot)), std::string(page.Value(slot))};
    };
    {
        const PageStore::ReadPage leaf = store_.Read(path.back().page, 0);
        const TreePage page = leaf->Page();
        const uint16_t slot = page.LowerBound(key);
        if (slot < page.Count() && page.Key(slot) == key) {
            return entry_of(page, slot);
        }
        if (slot > 0) {
            return entry_of(page, static_cast<uint16_t>(slot - 1));
        }
    }
    // All keys of the leaf are greater: the last entry of the leaf before it.
    for (size_t depth = path.size() - 1; depth-- > 0;) {
        if (path[depth].slot == 0) {
            continue;
        }
        uint16_t level = static_cast<uint16_t>(path.size() - 1 - depth);
        PageStore::ReadPage page = store_.Read(path[depth].page, level);
        PagePointer child = page->Page().Child(static_cast<uint16_t>(path[depth].slot - 1));
        while (--level > 0) {
            page = store_.Read(child, level);
            child = page->Page().Child(page->Page().LastSlot());
        }
        page = store_.Read(child, 0);
        return entry_of(page->Page(), page->Page().LastSlot());
    }
    return std::nullopt;
}

void Tree::Scan(std::string_view from, const Visit &visit) const {
    if (root_.levels > 0) {
        ScanPage(root_.page, static_cast<uint16_t>(root_.levels - 1), from, visit);
    }
}

bool Tree::ScanPage(const PagePointer &place, uint16_t level, std::string_view from,
                    const Visit &visit) const {
    const PageStore::ReadPage read = store_.Read(place, level);
    const TreePage page = read->Page();
    if (level == 0) {
        for (uint16_t slot = page.LowerBound(from); slot < page.Count(); slot++) {
            if (!visit(page.Key(slot), page.Value(slot))) {
                return false;
            }
        }
        return true;
    }
    for (uint16_t slot = page.ChildFor(from); slot < page.Count(); slot++) {
        if (!ScanPage(page.Child(slot), static_cast<uint16_t>(level - 1), from, visit)) {
            return false;
        }
    }
    return true;
}

// Throws nothing but for pages that were not read since the last Reserve. Returns the leaf.
TreePage Tree::MakePathWritable(std::vector<Step> &path) {
    TreePage page = store_.Writable(path[0].page, static_cast<uint16_t>(path.size() - 1));
    root_.page = path[0].page;
    for (size_t depth = 1; depth < path.size(); depth++) {
        const TreePage below =
            store_.Writable(path[depth].page, static_cast<uint16_t>(path.size() - 1 - depth));
        page.SetChild(path[depth - 1].slot, path[depth].page);
        page = below;
    }
    return page;
}

void Tree::Put(std::string_view key, std::string_view value) {
    RAWDUCK_INVARIANT(!key.empty() && key.size() + value.size() <= TREE_ENTRY_BYTES_MAX,
                      "what is put into a tree fits into a page");
    // Each page on the way may be copied and split, and a root added.
    store_.Reserve(2 * root_.levels + 2);
    if (root_.levels == 0) {
        store_.New(root_.page, 0).Insert(0, key, value);
        root_.levels = 1;
        return;
    }
    std::vector<Step> path = PathTo(key);
    TreePage leaf = MakePathWritable(path);
    const uint16_t slot = leaf.LowerBound(key);
    const bool replaces = slot < leaf.Count() && leaf.Key(slot) == key;
    if (!(replaces ? leaf.Replace(slot, value) : leaf.Insert(slot, key, value))) {
        Split(path, path.size() - 1, slot, key, value);
    }
    if (replaces && path.size() == root_.levels) {
        Tidy(path); // the value may be shorter
    }
}

// Puts an entry into a page of the path in which there is no room for it: its entries and the new one go onto two
// pages. Keys that come in order fill the pages that they leave. Needs no memory but what is reserved.
void Tree::Split(std::vector<Step> &path, size_t depth, uint16_t slot, std::string_view key,
                 std::string_view value) {
    const uint16_t level = static_cast<uint16_t>(path.size() - 1 - depth);
    TreePage left = store_.Writable(path[depth].page, level);
    PagePointer right_place;
    TreePage right = store_.New(right_place, level);
    const uint16_t count = left.Count();
    uint16_t middle = count;
    if (slot < count) {
        for (uint32_t bytes = 0; bytes < left.UsedBytes() / 2 && middle > 1;) {
            middle--;
            bytes += TreePage::EntryBytes(left.Key(middle), left.Value(middle));
        }
    }
    right.AppendFrom(left, middle, count);
    while (left.Count() > middle) {
        left.Erase(left.LastSlot());
    }
    const bool goes_left = slot < middle;
    TreePage &page = goes_left ? left : right;
    const bool inserted = page.Insert(goes_left ? slot : static_cast<uint16_t>(slot - middle), key, value);
    RAWDUCK_INVARIANT(inserted, "half of a page has room for any entry");
    char separator_bytes[TREE_ENTRY_BYTES_MAX];
    const std::string_view separator(separator_bytes,
                                     right.Key(0).copy(separator_bytes, sizeof separator_bytes));
    if (level > 0) {
        const PagePointer first = right.Child(0);
        right.Erase(0);
        right.Insert(0, "", Bytes(first));
    }
    if (depth == 0) {
        GrowRoot(path[0].page, separator, right_place);
        return;
    }
    TreePage parent = store_.Writable(path[depth - 1].page, static_cast<uint16_t>(level + 1));
    const uint16_t parent_slot = static_cast<uint16_t>(path[depth - 1].slot + 1);
    if (!parent.Insert(parent_slot, separator, Bytes(right_place))) {
        Split(path, depth - 1, parent_slot, separator, Bytes(right_place));
    }
}

void Tree::GrowRoot(const PagePointer &left, std::string_view key, const PagePointer &right) {
    RAWDUCK_INVARIANT(root_.levels < TREE_LEVELS_MAX, "a tree that fits on a device has few levels");
    PagePointer place;
    TreePage root = store_.New(place, static_cast<uint16_t>(root_.levels));
    root.Insert(0, "", Bytes(left));
    root.Insert(1, key, Bytes(right));
    root_.page = place;
    root_.levels++;
}

bool Tree::Erase(std::string_view key) {
    if (root_.levels == 0) {
        return false;
    }
    std::vector<Step> path = PathTo(key);
    {
        const PageStore::ReadPage read = store_.Read(path.back().page, 0);
        const TreePage leaf = read->Page();
        path.back().slot = leaf.LowerBound(key);
        if (path.back().slot == leaf.Count() || leaf.Key(path.back().slot) != key) {
            return false;
        }
    }
    // Each page on the way may be copied, and one beside it.
    store_.Reserve(2 * root_.levels);
    TreePage leaf = MakePathWritable(path);
    leaf.Erase(path.back().slot);
    Tidy(path);
    return true;
}

void Tree::VisitPages(std::string_view from, const std::optional<std::string> &to,
                      const VisitLocated &visit) const {
    if (root_.levels > 0) {
        VisitPage({root_.page, std::string(from), 0}, static_cast<uint16_t>(root_.levels - 1), from, to,
                  visit);
    }
}

// The key of the way to a page below is the first that belongs there, but for the first page: there it is that of the
// way to this one.
void Tree::VisitPage(const Located &place, uint16_t level, std::string_view from,
                     const std::optional<std::string> &to, const VisitLocated &visit) const {
    const PageStore::ReadPage read = store_.Read(place.page, level);
    const TreePage page = read->Page();
    if (!visit(place, page) || level == 0) {
        return;
    }
    const uint16_t first = page.ChildFor(from);
    for (uint16_t slot = first; slot < page.Count(); slot++) {
        if (slot > first && to && page.Key(slot) > *to) {
            return;
        }
        Located below{page.Child(slot), place.key, static_cast<uint16_t>(place.depth + 1)};
        if (slot > first) {
            below.key = page.Key(slot);
        }
        VisitPage(below, static_cast<uint16_t>(level - 1), below.key, to, visit);
    }
}

void Tree::CopyPage(std::string_view key, uint16_t depth) {
    store_.Reserve(depth + 1);
    std::vector<Step> path = PathTo(key);
    RAWDUCK_INVARIANT(depth < path.size(), "a page that is copied is there");
    path.resize(depth + 1);
    // Nothing from here on throws.
    const auto level_at = [&](size_t at) { return static_cast<uint16_t>(root_.levels - 1 - at); };
    for (size_t at = 0; at < path.size(); at++) {
        PagePointer &place = path[at].page;
        at < depth ? store_.Writable(place, level_at(at)) : store_.Copy(place, level_at(at));
        if (at == 0) {
            root_.page = place;
        } else {
            store_.Writable(path[at - 1].page, level_at(at - 1)).SetChild(path[at - 1].slot, place);
        }
    }
}

void Tree::Clear() {
    if (root_.levels == 0) {
        return;
    }
    std::vector<PagePointer> pages; // all are read before one is given up
    CollectPages(root_.page, static_cast<uint16_t>(root_.levels - 1), pages);
    for (const PagePointer &page : pages) {
        store_.Drop(page);
    }
    root_ = TreeRoot();
}

void Tree::CollectPages(const PagePointer &place, uint16_t level, std::vector<PagePointer> &pages) const {
    pages.push_back(place);
    if (level == 0) {
        store_.RequirePlace(place); // leaves need not be read
        return;
    }
    const PageStore::ReadPage page = store_.Read(place, level);
    for (uint16_t slot = 0; slot < page->Page().Count(); slot++) {
        CollectPages(page->Page().Child(slot), static_cast<uint16_t>(level - 1), pages);
    }
}

} // namespace rawduck
