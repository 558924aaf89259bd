#include "volume/tree/extent_tree.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "volume/tree/number_key.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

struct Place {
    uint64_t start, units;
};
static_assert(sizeof(Place) == 16, "layout is part of the format");

bool IsExtent(std::string_view key, std::string_view value) {
    return key.size() == sizeof(uint64_t) && value.size() == sizeof(Place);
}

Extent ExtentOf(std::string_view key, std::string_view value) {
    if (!IsExtent(key, value)) {
        throw Error(ErrorCode::CORRUPT,
                    "the tree of a file's extents holds something else; `rawduck check` tells what it "
                    "concerns");
    }
    Extent extent;
    extent.file_unit = NumberKey::NumberOf(key);
    Place place{};
    memcpy(&place, value.data(), sizeof place);
    extent.start = place.start;
    extent.units = place.units;
    return extent;
}

uint64_t EndOf(const Extent &extent) {
    return extent.file_unit + extent.units;
}

bool Continues(const Extent &first, const Extent &second) {
    return EndOf(first) == second.file_unit && first.start + first.units == second.start;
}

//! The part of an extent from a unit of the file on.
Extent From(const Extent &extent, uint64_t file_unit) {
    const uint64_t into = file_unit - extent.file_unit;
    return Extent{file_unit, extent.start + into, extent.units - into};
}

//! The entries of a tree in order, up to one that is wrong.
class Sequence {
  public:
    //! `all`: what the extents are added to.
    explicit Sequence(std::vector<Extent> &all) : all_(all) {}

    //! Returns whether all was right so far.
    bool Add(std::string_view key, std::string_view value) {
        if (!problem_.empty()) {
            return false;
        }
        if (!IsExtent(key, value)) {
            problem_ = "the tree of a file's extents holds something else";
            return false;
        }
        const Extent extent = ExtentOf(key, value);
        if (extent.file_unit != EndOf(last_) || extent.units == 0) {
            problem_ = "file unit " + std::to_string(EndOf(last_)) + " is covered " +
                       (extent.file_unit > EndOf(last_) ? "by nothing" : "twice");
        } else if (last_.units > 0 && Continues(last_, extent)) {
            problem_ =
                "the extent at file unit " + std::to_string(extent.file_unit) + " continues the one before";
        }
        last_ = extent;
        all_.push_back(extent);
        return problem_.empty();
    }
    std::vector<std::string> Problems() const {
        return problem_.empty() ? std::vector<std::string>() : std::vector<std::string>{problem_};
    }

  private:
    std::vector<Extent> &all_;
    Extent last_;
    std::string problem_;
};

} // namespace

void ExtentTree::Put(const Extent &extent) {
    const Place place{extent.start, extent.units};
    tree_.Put(NumberKey(extent.file_unit), {reinterpret_cast<const char *>(&place), sizeof place});
}

void ExtentTree::Erase(uint64_t file_unit) {
    tree_.Erase(NumberKey(file_unit));
}

//! The last that begins before the unit.
std::optional<Extent> ExtentTree::FindBefore(uint64_t file_unit) const {
    const auto entry = file_unit > 0 ? tree_.FindAtOrBefore(NumberKey(file_unit - 1)) : std::nullopt;
    return entry ? std::optional<Extent>(ExtentOf(entry->key, entry->value)) : std::nullopt;
}

uint64_t ExtentTree::Units() const {
    const auto last = FindBefore(UINT64_MAX);
    return last ? EndOf(*last) : 0;
}

bool ExtentTree::HasAtMost(size_t extents) const {
    size_t found = 0;
    tree_.Scan("", [&](std::string_view, std::string_view) { return ++found <= extents; });
    return found <= extents;
}

std::vector<Extent> ExtentTree::Slice(uint64_t from, uint64_t to) const {
    std::vector<Extent> pieces;
    if (from >= to) {
        return pieces;
    }
    const auto first = FindBefore(from + 1);
    tree_.Scan(NumberKey(first ? first->file_unit : from), [&](std::string_view key, std::string_view value) {
        Extent piece = ExtentOf(key, value);
        if (piece.file_unit >= to) {
            return false;
        }
        if (EndOf(piece) > from) {
            piece = From(piece, std::max(piece.file_unit, from));
            piece.units = std::min(EndOf(piece), to) - piece.file_unit;
            pieces.push_back(piece);
        }
        return EndOf(piece) < to;
    });
    return pieces;
}

void ExtentTree::Append(const Extent &extent) {
    RAWDUCK_INVARIANT(extent.units > 0 && extent.file_unit <= Units(), "extents cover a file without a gap");
    ClearRange(extent.file_unit, EndOf(extent));
    Put(extent);
    JoinWithNeighbours(extent);
}

void ExtentTree::Remap(const Extent &moved) {
    // Not beyond the range: when this is made again, its end may be gone already.
    RAWDUCK_INVARIANT(moved.units > 0 && moved.file_unit <= Units(),
                      "only what is covered can lie elsewhere");
    ClearRange(moved.file_unit, EndOf(moved));
    Put(moved);
    JoinWithNeighbours(moved);
}

// No extent reaches into the range afterwards but one that begins with it. The part behind the range is put first:
// cut off before it is there, it would be lost if the rest fails.
void ExtentTree::ClearRange(uint64_t begin, uint64_t end) {
    const auto last = FindBefore(end);
    if (last && EndOf(*last) > end) {
        Put(From(*last, end));
    }
    const auto before = FindBefore(begin);
    if (before && EndOf(*before) > begin) {
        Put(Extent{before->file_unit, before->start, begin - before->file_unit});
    }
    for (auto inside = FindBefore(end); inside && inside->file_unit > begin; inside = FindBefore(end)) {
        Erase(inside->file_unit);
    }
}

// What takes in its neighbour is put before the neighbour is erased: made again, ClearRange cuts it.
void ExtentTree::JoinWithNeighbours(Extent extent) {
    const auto next = FindBefore(EndOf(extent) + 1);
    if (next && Continues(extent, *next)) {
        extent.units += next->units;
        Put(extent);
        Erase(next->file_unit);
    }
    auto before = FindBefore(extent.file_unit);
    if (before && Continues(*before, extent)) {
        before->units += extent.units;
        Put(*before);
        Erase(extent.file_unit);
    }
}

void ExtentTree::Truncate(uint64_t units) {
    for (auto last = FindBefore(UINT64_MAX); last && EndOf(*last) > units; last = FindBefore(UINT64_MAX)) {
        if (last->file_unit < units) {
            Put(Extent{last->file_unit, last->start, units - last->file_unit});
        } else {
            Erase(last->file_unit);
        }
    }
}

// From the extent before, which may be cut or take in what is new, to the one that begins where the range ends.
void ExtentTree::VisitPages(uint64_t from, const std::optional<uint64_t> &to,
                            const Tree::VisitLocated &visit) const {
    const auto before = FindBefore(from);
    const NumberKey begin(before ? before->file_unit : from);
    const auto end = to ? std::optional<std::string>(NumberKey(*to)) : std::nullopt;
    tree_.VisitPages(begin, end, visit);
}

std::vector<Extent> ExtentTree::ExtentsOf(const TreePage &leaf) {
    std::vector<Extent> extents;
    for (uint16_t slot = 0; slot < leaf.Count(); slot++) {
        extents.push_back(ExtentOf(leaf.Key(slot), leaf.Value(slot)));
    }
    return extents;
}

std::vector<std::string>
ExtentTree::FindProblems(const std::function<void(const PagePointer &)> &visit_page) const {
    const Tree::LookBelow always = [&](const PagePointer &page) {
        visit_page(page);
        return true;
    };
    std::vector<Extent> all;
    return FindProblems(always, [](const Extent &) {}, all);
}

// Once, unless there are pages that it is not to look below, which are read for their sequence all the same.
std::vector<std::string> ExtentTree::FindProblems(const Tree::LookBelow &visit_page,
                                                  const std::function<void(const Extent &)> &visit,
                                                  std::vector<Extent> &all) const {
    bool looked_everywhere = true;
    const Tree::LookBelow look = [&](const PagePointer &page) {
        const bool looks_below = visit_page(page);
        looked_everywhere = looked_everywhere && looks_below;
        return looks_below;
    };
    Sequence sequence(all);
    std::vector<std::string> problems =
        tree_.FindProblems(look, [&](std::string_view key, std::string_view value) {
            if (IsExtent(key, value)) {
                visit(ExtentOf(key, value));
            }
            return sequence.Add(key, value);
        });
    if (!problems.empty()) {
        return problems; // what cannot be read cannot be scanned
    }
    if (looked_everywhere) {
        return sequence.Problems();
    }
    all.clear();
    Sequence again(all);
    tree_.Scan("", [&](std::string_view key, std::string_view value) { return again.Add(key, value); });
    return again.Problems();
}

} // namespace rawduck
