#include "volume/file/extent_map.hpp"

#include "common/invariant.hpp"

#include <algorithm>

namespace rawduck {

void ExtentMap::Append(AllocationUnit start, uint64_t units) {
    RAWDUCK_INVARIANT(units > 0, "an extent holds something");
    const auto place = places_.emplace_hint(places_.end(), units_, Place{Index(start), units});
    units_ += units;
    if (place != places_.begin()) {
        JoinWithNext(std::prev(place));
    }
}

ExtentMap::Places::const_iterator ExtentMap::Find(uint64_t file_unit) const {
    RAWDUCK_INVARIANT(file_unit < units_, "what is looked for in a file lies in its extents");
    return std::prev(places_.upper_bound(file_unit));
}

uint64_t ExtentMap::Locate(uint64_t file_offset, uint64_t &contiguous) const {
    const auto &[file_unit, place] = *Find(file_offset / ALLOCATION_UNIT_BYTES);
    const uint64_t into = file_offset - file_unit * ALLOCATION_UNIT_BYTES;
    contiguous = place.units * ALLOCATION_UNIT_BYTES - into;
    return place.start * ALLOCATION_UNIT_BYTES + into;
}

Extent ExtentMap::At(uint64_t unit) const {
    const auto &[file_unit, place] = *Find(unit);
    return Extent{file_unit, place.start, place.units};
}

std::vector<Extent> ExtentMap::Slice(uint64_t from, uint64_t to) const {
    std::vector<Extent> pieces;
    to = std::min(to, units_);
    if (from >= to) {
        return pieces;
    }
    for (auto at = Find(from); at != places_.end() && at->first < to; ++at) {
        const auto &[file_unit, place] = *at;
        const uint64_t begin = std::max(from, file_unit);
        const uint64_t end = std::min(to, file_unit + place.units);
        pieces.push_back(Extent{begin, place.start + (begin - file_unit), end - begin});
    }
    return pieces;
}

// Returns the place that begins with the file unit, which
// is made if need be; the end for the unit behind the last.
ExtentMap::Places::iterator ExtentMap::SplitAt(uint64_t file_unit) {
    const auto next = places_.lower_bound(file_unit);
    if (file_unit >= units_ || (next != places_.end() && next->first == file_unit)) {
        return next;
    }
    const auto split = std::prev(next);
    const uint64_t into = file_unit - split->first;
    const Place rest{split->second.start + into, split->second.units - into};
    const auto made = places_.emplace_hint(next, file_unit, rest); // which may throw, so it comes first
    split->second.units = into;
    return made;
}

// Returns whether the two continue each other.
bool ExtentMap::JoinWithNext(Places::iterator place) {
    const auto next = std::next(place);
    if (next == places_.end() || place->second.start + place->second.units != next->second.start) {
        return false;
    }
    place->second.units += next->second.units;
    places_.erase(next);
    return true;
}

std::vector<Extent> ExtentMap::Truncate(uint64_t units) {
    std::vector<Extent> cut = Slice(units, units_);
    if (!cut.empty()) {
        places_.erase(SplitAt(units), places_.end());
        units_ = units;
    }
    RAWDUCK_SLOW_INVARIANT(CoversWithoutGap(), "extents cover the file from its start without a gap");
    return cut;
}

void ExtentMap::Remap(const std::vector<Extent> &moved) {
    const uint64_t begin = moved.front().file_unit, end = moved.back().file_unit + moved.back().units;
    RAWDUCK_INVARIANT(end <= units_, "only what the extents cover can lie elsewhere");
    SplitAt(begin);
    for (const Extent &piece : moved) {
        SplitAt(piece.file_unit + piece.units); // which may throw, so all of them come first
    }
    for (const Extent &piece : moved) {
        const auto place = places_.find(piece.file_unit);
        RAWDUCK_INVARIANT(place != places_.end() && piece.units > 0, "pieces continue each other");
        places_.erase(std::next(place), places_.lower_bound(piece.file_unit + piece.units));
        place->second = Place{piece.start, piece.units};
    }
    auto place = places_.find(begin);
    place = place == places_.begin() ? place : std::prev(place);
    while (place != places_.end() && place->first < end) {
        place = JoinWithNext(place) ? place : std::next(place);
    }
    RAWDUCK_SLOW_INVARIANT(CoversWithoutGap(), "extents cover the file from its start without a gap");
}

bool ExtentMap::CoversWithoutGap() const {
    uint64_t next = 0;
    for (const auto &[file_unit, place] : places_) {
        if (file_unit != next || place.units == 0) {
            return false;
        }
        next += place.units;
    }
    return next == units_;
}

AllocationUnit ExtentMap::End() const {
    if (places_.empty()) {
        return AllocationUnit{0};
    }
    const Place &last = places_.rbegin()->second;
    return static_cast<AllocationUnit>(last.start + last.units);
}

} // namespace rawduck
