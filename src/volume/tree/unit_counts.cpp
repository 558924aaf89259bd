#include "volume/tree/unit_counts.hpp"

#include "common/invariant.hpp"

#include <iterator>

namespace rawduck {

UnitCounts::Piece UnitCounts::First(uint64_t start, uint64_t end) const {
    const auto next = ranges_.upper_bound(start);
    if (next != ranges_.begin()) {
        const auto &[at, range] = *std::prev(next);
        if (range.end > start) {
            return {start, std::min(range.end, end) - start, range.count};
        }
    }
    const uint64_t gap_end = next == ranges_.end() ? end : std::min(end, next->first);
    return {start, gap_end - start, 0};
}

bool UnitCounts::Any(uint64_t start, uint64_t units) const {
    if (ranges_.empty() || units == 0) {
        return false;
    }
    const Piece first = First(start, start + units);
    return first.count > 0 || first.units < units;
}

void UnitCounts::SplitAt(uint64_t unit) {
    const auto next = ranges_.upper_bound(unit);
    if (next == ranges_.begin()) {
        return;
    }
    auto &[start, range] = *std::prev(next);
    if (start < unit && range.end > unit) {
        ranges_.emplace_hint(next, unit, range);
        range.end = unit;
    }
}

void UnitCounts::JoinWithPrevious(Ranges::iterator range) {
    if (range == ranges_.begin() || range == ranges_.end()) {
        return;
    }
    const auto before = std::prev(range);
    if (before->second.end == range->first && before->second.count == range->second.count) {
        before->second.end = range->second.end;
        ranges_.erase(range);
    }
}

// Nothing throws once a count has changed.
void UnitCounts::Set(uint64_t start, uint64_t units, uint64_t count) {
    const uint64_t end = start + units;
    if (units == 0) {
        return;
    }
    SplitAt(start);
    SplitAt(end);
    if (count > 0) {
        ranges_.insert_or_assign(start, Range{end, count});
    }
    const auto rest = count > 0 ? ranges_.upper_bound(start) : ranges_.lower_bound(start);
    const auto behind = ranges_.erase(rest, ranges_.lower_bound(end));
    JoinWithPrevious(behind);
    JoinWithPrevious(ranges_.lower_bound(start));
}

void UnitCounts::Add(uint64_t start, uint64_t units) {
    const uint64_t end = start + units;
    for (uint64_t at = start; at < end;) {
        const Piece piece = First(at, end);
        Set(piece.start, piece.units, piece.count + 1);
        at += piece.units;
    }
}

} // namespace rawduck
