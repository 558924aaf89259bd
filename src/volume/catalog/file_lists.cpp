#include "volume/catalog/file_lists.hpp"

#include "common/error.hpp"
#include "common/scope_exit.hpp"
#include "volume/format/extent_list.hpp"
#include "volume/tree/extent_tree.hpp"
#include "volume/tree/number_key.hpp"
#include "volume/tree/reference_tree.hpp"

#include <algorithm>
#include <cstring>
#include <map>

namespace rawduck {

namespace {

//! False when it holds something else.
bool ReadHoles(const Tree &tree, std::vector<Hole> &holes) {
    bool sound = true;
    tree.Scan("", [&](std::string_view key, std::string_view value) {
        Hole hole;
        sound = key.size() == NumberKey::BYTES && value.size() == sizeof hole.length;
        if (sound) {
            hole.offset = NumberKey::NumberOf(key);
            memcpy(&hole.length, value.data(), sizeof hole.length);
            holes.push_back(hole);
        }
        return sound;
    });
    return sound;
}

} // namespace

// The root is that of the tree as it is, whatever becomes of the change.
template <class CHANGE> void FileLists::ChangeExtents(const CHANGE &change) {
    ExtentTree tree(store_, entry_.extents_root, references_);
    const ScopeExit keep_root([&] { entry_.extents_root = tree.Root(); });
    change(tree);
}

template <class CHANGE> void FileLists::ChangeHoles(const CHANGE &change) {
    Tree tree(store_, entry_.holes_root, references_);
    const ScopeExit keep_root([&] { entry_.holes_root = tree.Root(); });
    change(tree);
}

std::vector<Extent> FileLists::Extents(uint64_t from, uint64_t to) const {
    if (entry_.extents.empty()) {
        return ExtentTree(store_, entry_.extents_root).Slice(from, to);
    }
    std::vector<Extent> pieces;
    for (const Extent &extent : entry_.extents) {
        const uint64_t begin = std::max(from, extent.file_unit);
        const uint64_t end = std::min(to, extent.file_unit + extent.units);
        if (begin < end) {
            pieces.push_back(Extent{begin, extent.start + (begin - extent.file_unit), end - begin});
        }
    }
    return pieces;
}

// A tree that is there already is what an attempt before has left.
void FileLists::MoveExtentsToTree() {
    if (entry_.extents.size() <= ENTRY_EXTENTS_MAX) {
        return;
    }
    ChangeExtents([&](ExtentTree &tree) {
        tree.Clear();
        for (const Extent &extent : entry_.extents) {
            tree.Append(extent);
        }
    });
    entry_.extents.clear();
}

// A list that has become short takes no page any more: room for metadata is counted so.
void FileLists::MoveExtentsToEntry() {
    const TreeRoot &root = entry_.extents_root;
    if (root.levels != 1 || (references_ && references_->IsShared(root.page)) ||
        !ExtentTree(store_, root).HasAtMost(ENTRY_EXTENTS_MAX)) {
        return;
    }
    std::vector<Extent> extents = Extents(0, UINT64_MAX);
    ChangeExtents([](ExtentTree &tree) { tree.Clear(); });
    entry_.extents.swap(extents);
}

void FileLists::Append(const Extent &extent) {
    if (entry_.extents_root.levels > 0 && entry_.extents.empty()) {
        ChangeExtents([&](ExtentTree &tree) { tree.Append(extent); });
        return;
    }
    if (extent.file_unit == UnitsOf(entry_.extents)) {
        AppendExtent(entry_.extents, extent);
    }
    MoveExtentsToTree();
}

void FileLists::Remap(const std::vector<Extent> &moved) {
    if (entry_.extents.empty()) {
        ChangeExtents([&](ExtentTree &tree) {
            for (const Extent &extent : moved) {
                tree.Remap(extent);
            }
        });
        MoveExtentsToEntry();
        return;
    }
    entry_.extents = RemappedExtents(entry_.extents, moved);
    MoveExtentsToTree();
}

void FileLists::CutUnits(uint64_t units) {
    if (entry_.extents.empty()) {
        ChangeExtents([&](ExtentTree &tree) { tree.Truncate(units); });
        MoveExtentsToEntry();
    } else {
        CutExtents(entry_.extents, units);
    }
}

std::vector<Hole> FileLists::Holes() const {
    std::vector<Hole> holes = entry_.holes;
    if (holes.empty() && !ReadHoles(Tree(store_, entry_.holes_root), holes)) {
        throw Error(ErrorCode::CORRUPT,
                    "the tree of the holes of \"" + entry_.name +
                        "\" holds something else; `rawduck check` tells what it concerns");
    }
    return holes;
}

void FileLists::SetHoles(const std::vector<Hole> &holes) {
    if (holes.size() <= ENTRY_HOLES_MAX) {
        std::vector<Hole> copy = holes;
        ChangeHoles([](Tree &tree) { tree.Clear(); });
        entry_.holes.swap(copy);
        return;
    }
    std::map<uint64_t, uint64_t> old;
    std::vector<Hole> in_tree;
    ReadHoles(Tree(store_, entry_.holes_root), in_tree);
    for (const Hole &hole : in_tree) {
        old[hole.offset] = hole.length;
    }
    ChangeHoles([&](Tree &tree) {
        for (const Hole &hole : holes) {
            const auto same = old.find(hole.offset);
            if (same == old.end() || same->second != hole.length) {
                tree.Put(NumberKey(hole.offset), BytesOf(hole.length));
            }
            if (same != old.end()) {
                old.erase(same);
            }
        }
        for (const auto &[offset, length] : old) {
            tree.Erase(NumberKey(offset));
        }
    });
    entry_.holes.clear();
}

bool FileLists::HolesReachBeyond(uint64_t size) const {
    if (!entry_.holes.empty()) {
        return entry_.holes.back().offset + entry_.holes.back().length > size;
    }
    const auto last = Tree(store_, entry_.holes_root).FindAtOrBefore(NumberKey(UINT64_MAX));
    uint64_t length = 0;
    if (last) {
        memcpy(&length, last->value.data(), std::min(sizeof length, last->value.size()));
    }
    return last && NumberKey::NumberOf(last->key) + length > size;
}

void FileLists::CutHoles(uint64_t size) {
    if (!entry_.holes.empty()) {
        rawduck::CutHoles(entry_.holes, size);
        return;
    }
    ChangeHoles([&](Tree &tree) {
        for (auto last = tree.FindAtOrBefore(NumberKey(UINT64_MAX)); last;
             last = tree.FindAtOrBefore(NumberKey(UINT64_MAX))) {
            const uint64_t offset = NumberKey::NumberOf(last->key);
            uint64_t length = 0;
            memcpy(&length, last->value.data(), std::min(sizeof length, last->value.size()));
            if (offset >= size) {
                tree.Erase(last->key);
                continue;
            }
            if (length > size - offset) {
                tree.Put(last->key, BytesOf(size - offset));
            }
            return;
        }
    });
}

void FileLists::CopyExtentPage(std::string_view key, uint16_t depth) {
    ChangeExtents([&](ExtentTree &tree) { tree.CopyPage(key, depth); });
}

void FileLists::CopyHolePage(std::string_view key, uint16_t depth) {
    ChangeHoles([&](Tree &tree) { tree.CopyPage(key, depth); });
}

std::vector<std::string> FileLists::FindProblems(const Tree::LookBelow &visit_page,
                                                 const std::function<void(const Extent &)> &visit,
                                                 Contents &contents) const {
    std::vector<Extent> in_tree;
    std::vector<std::string> problems =
        ExtentTree(store_, entry_.extents_root).FindProblems(visit_page, visit, in_tree);
    for (const Extent &extent : entry_.extents) {
        visit(extent);
    }
    const Tree holes_tree(store_, entry_.holes_root);
    for (std::string &problem :
         holes_tree.FindProblems(visit_page, [](std::string_view, std::string_view) { return true; })) {
        problems.push_back(std::move(problem));
    }
    if (!problems.empty()) {
        return problems; // what cannot be read cannot be compared
    }
    contents.extents = entry_.extents.empty() ? std::move(in_tree) : entry_.extents;
    const uint64_t units = UnitsOf(contents.extents);
    if (units != entry_.units || entry_.size > units * ALLOCATION_UNIT_BYTES ||
        units != AlignUp(entry_.size, ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES) {
        problems.push_back("file \"" + entry_.name + "\": its extents do not match its size");
    }
    contents.holes = entry_.holes;
    if ((contents.holes.empty() && !ReadHoles(holes_tree, contents.holes)) ||
        !AreHolesSound(contents.holes, entry_.size)) {
        problems.push_back("file \"" + entry_.name + "\": its list of holes makes no sense");
    }
    return problems;
}

} // namespace rawduck
