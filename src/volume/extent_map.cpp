#include "volume/extent_map.hpp"

#include "common/invariant.hpp"

#include <algorithm>

namespace rawduck {

void ExtentMap::Append(Unit start, uint64_t units) {
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
    const auto &[file_unit, place] = *Find(file_offset / UNIT_SIZE);
    const uint64_t into = file_offset - file_unit * UNIT_SIZE;
    contiguous = place.units * UNIT_SIZE - into;
    return place.start * UNIT_SIZE + into;
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

// Returns the place that begins with the file unit, which is made if need be; the end for the unit behind the
// last.
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

void ExtentMap::JoinWithNext(Places::iterator place) {
    const auto next = std::next(place);
    if (next != places_.end() && place->second.start + place->second.units == next->second.start) {
        place->second.units += next->second.units;
        places_.erase(next);
    }
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

void ExtentMap::Split(uint64_t file_unit) {
    SplitAt(file_unit);
}

void ExtentMap::Remap(const Extent &moved) {
    RAWDUCK_INVARIANT(moved.units > 0 && moved.file_unit + moved.units <= units_,
                      "only what the extents cover can lie elsewhere");
    const auto behind = SplitAt(moved.file_unit + moved.units);
    const auto place = SplitAt(moved.file_unit);
    places_.erase(std::next(place), behind);
    place->second = Place{moved.start, moved.units};
    JoinWithNext(place);
    if (place != places_.begin()) {
        JoinWithNext(std::prev(place));
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

Unit ExtentMap::End() const {
    if (places_.empty()) {
        return Unit{0};
    }
    const Place &last = places_.rbegin()->second;
    return static_cast<Unit>(last.start + last.units);
}

} // namespace rawduck
