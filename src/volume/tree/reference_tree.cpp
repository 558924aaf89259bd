#include "volume/tree/reference_tree.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "volume/tree/number_key.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

struct Value {
    uint64_t units, references;
};
static_assert(sizeof(Value) == 16, "layout is part of the format");

bool IsRange(std::string_view key, std::string_view value) {
    return key.size() == NumberKey::BYTES && value.size() == sizeof(Value);
}

//! Of a range, which may make no sense.
ReferencedUnits Decode(std::string_view key, std::string_view value) {
    Value decoded{};
    memcpy(&decoded, value.data(), sizeof decoded);
    return {NumberKey::NumberOf(key), decoded.units, decoded.references};
}

//! Who goes through ranges one after the other relies on each leading on.
bool IsSound(const ReferencedUnits &range) {
    return range.units > 0 && range.units <= UINT64_MAX - range.start && range.references > 1;
}

ReferencedUnits RangeOf(std::string_view key, std::string_view value) {
    const bool is_range = IsRange(key, value);
    const ReferencedUnits range = is_range ? Decode(key, value) : ReferencedUnits();
    if (!IsSound(range)) {
        throw Error(
            ErrorCode::CORRUPT,
            (is_range ? "the references to allocation unit " + std::to_string(range.start) + " make no sense"
                      : std::string("the tree of references holds something else")) +
                "; `rawduck check` tells what it concerns");
    }
    return range;
}

uint64_t EndOf(const ReferencedUnits &range) {
    return range.start + range.units;
}

bool Continues(const ReferencedUnits &first, const ReferencedUnits &second) {
    return EndOf(first) == second.start && first.references == second.references;
}

} // namespace

void ReferenceTree::Put(const ReferencedUnits &range) {
    const Value value{range.units, range.references};
    tree_.Put(NumberKey(range.start), {reinterpret_cast<const char *>(&value), sizeof value});
}

void ReferenceTree::Erase(uint64_t start) {
    tree_.Erase(NumberKey(start));
}

//! The last that begins before the unit.
std::optional<ReferencedUnits> ReferenceTree::FindBefore(uint64_t unit) const {
    const auto entry = unit > 0 ? tree_.FindAtOrBefore(NumberKey(unit - 1)) : std::nullopt;
    return entry ? std::optional<ReferencedUnits>(RangeOf(entry->key, entry->value)) : std::nullopt;
}

ReferencedUnits ReferenceTree::First(uint64_t start, uint64_t end) const {
    if (Empty()) {
        return {start, end - start, 1};
    }
    const auto before = FindBefore(start + 1);
    if (before && EndOf(*before) > start) {
        return {start, std::min(end, EndOf(*before)) - start, before->references};
    }
    uint64_t gap_end = end;
    tree_.Scan(NumberKey(start), [&](std::string_view key, std::string_view value) {
        gap_end = std::min(end, RangeOf(key, value).start);
        return false;
    });
    return {start, gap_end - start, 1};
}

bool ReferenceTree::IsShared(const PagePointer &page) const {
    return First(page.unit, page.unit + 1).references > 1;
}

// In the order of ExtentTree: what is cut off behind is put first, and what takes in its neighbour before that is erased,
// so that an attempt that was interrupted anywhere is whole when it is made again.
void ReferenceTree::Set(const ReferencedUnits &range) {
    RAWDUCK_INVARIANT(range.units > 0, "references are to something");
    const uint64_t end = EndOf(range);
    const auto last = FindBefore(end);
    if (last && EndOf(*last) > end) {
        Put({end, EndOf(*last) - end, last->references});
    }
    const auto cut = FindBefore(range.start);
    if (cut && EndOf(*cut) > range.start) {
        Put({cut->start, range.start - cut->start, cut->references});
    }
    for (auto inside = FindBefore(end); inside && inside->start > range.start; inside = FindBefore(end)) {
        Erase(inside->start);
    }
    if (range.references <= 1) {
        Erase(range.start);
        return;
    }
    ReferencedUnits joined = range;
    Put(joined);
    const auto next = FindBefore(end + 1);
    if (next && Continues(joined, *next)) {
        joined.units += next->units;
        Put(joined);
        Erase(next->start);
    }
    const auto before = FindBefore(joined.start);
    if (before && Continues(*before, joined)) {
        Put({before->start, before->units + joined.units, before->references});
        Erase(joined.start);
    }
}

void ReferenceTree::Scan(const std::function<void(const ReferencedUnits &)> &visit) const {
    tree_.Scan("", [&](std::string_view key, std::string_view value) {
        visit(RangeOf(key, value));
        return true;
    });
}

std::vector<std::string>
ReferenceTree::FindProblems(const std::function<void(const PagePointer &)> &visit_page) const {
    std::vector<std::string> problems = tree_.FindProblems(visit_page);
    if (!problems.empty()) {
        return problems; // what cannot be read cannot be scanned
    }
    ReferencedUnits last;
    tree_.Scan("", [&](std::string_view key, std::string_view value) {
        if (!IsRange(key, value)) {
            problems.emplace_back("the tree of references holds something else");
            return false;
        }
        const ReferencedUnits range = Decode(key, value);
        const bool sound = IsSound(range) && range.start >= EndOf(last);
        if (!sound || (last.units > 0 && Continues(last, range))) {
            problems.push_back("the references to allocation unit " + std::to_string(range.start) +
                               (sound ? " continue those before" : " make no sense"));
        }
        last = range;
        return problems.empty();
    });
    return problems;
}

ReferencedUnits ReferenceChanges::First(uint64_t start, uint64_t end) const {
    const UnitCounts::Piece changed = changed_.First(start, end);
    if (changed.count > 0) {
        return {start, changed.units, changed.count};
    }
    return tree_.First(start, start + changed.units);
}

bool ReferenceChanges::IsShared(const PagePointer &page) const {
    return First(page.unit, page.unit + 1).references > 1;
}

void ReferenceChanges::Add(uint64_t start, uint64_t units) {
    for (uint64_t at = start; at < start + units;) {
        const ReferencedUnits piece = First(at, start + units);
        changed_.Set(piece.start, piece.units, piece.references + 1);
        at += piece.units;
    }
}

void ReferenceChanges::Remove(uint64_t start, uint64_t units, std::vector<Extent> &gone) {
    for (uint64_t at = start; at < start + units;) {
        const ReferencedUnits piece = First(at, start + units);
        if (piece.references > 1) {
            changed_.Set(piece.start, piece.units, piece.references - 1);
        } else {
            gone.push_back(Extent{0, piece.start, piece.units});
        }
        at += piece.units;
    }
}

std::vector<ReferencedUnits> ReferenceChanges::Take() {
    std::vector<ReferencedUnits> changes;
    changed_.ForAll([&](const UnitCounts::Piece &piece) {
        for (uint64_t at = piece.start; at < piece.start + piece.units;) {
            const ReferencedUnits before = tree_.First(at, piece.start + piece.units);
            if (before.references != piece.count) {
                changes.push_back({at, before.units, piece.count});
            }
            at += before.units;
        }
    });
    changed_.Clear();
    return changes;
}

} // namespace rawduck
