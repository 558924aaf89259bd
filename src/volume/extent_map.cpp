#include "volume/extent_map.hpp"

#include <algorithm>
#include <cassert>

namespace rawduck {

namespace {
//! Slots per extent that the index may hold before its slots are made twice as wide.
constexpr size_t SLOTS_PER_EXTENT = 4;
constexpr size_t SLOTS_MIN = 64;
} // namespace

void ExtentMap::Append(Unit start, uint64_t units) {
    assert(units > 0);
    const bool continues = !extents_.empty() &&
                           extents_.back().start + extents_.back().units == Index(start) &&
                           extents_.back().file_unit + extents_.back().units == units_;
    if (continues) {
        extents_.back().units += units;
    } else {
        extents_.push_back(Extent{units_, Index(start), units});
    }
    units_ += units;
    Reindex();
}

// Extends the index to the end of the file. Slots that exist stay right, because extents only grow at the
// end; when there are too many slots for the number of extents, every second one goes.
void ExtentMap::Reindex() {
    const size_t limit = std::max(SLOTS_MIN, SLOTS_PER_EXTENT * extents_.size());
    while ((units_ >> slot_shift_) > limit) {
        slot_shift_++;
        size_t kept = 0;
        for (size_t i = 0; i < slots_.size(); i += 2) {
            slots_[kept++] = slots_[i];
        }
        slots_.resize(kept);
    }
    size_t extent = slots_.empty() ? 0 : slots_.back();
    while ((static_cast<uint64_t>(slots_.size()) << slot_shift_) < units_) {
        const uint64_t first = static_cast<uint64_t>(slots_.size()) << slot_shift_;
        while (extents_[extent].file_unit + extents_[extent].units <= first) {
            extent++;
        }
        slots_.push_back(static_cast<uint32_t>(extent));
    }
}

size_t ExtentMap::Find(uint64_t file_unit) const {
    assert(file_unit < units_);
    size_t extent = slots_[file_unit >> slot_shift_];
    while (extents_[extent].file_unit + extents_[extent].units <= file_unit) {
        extent++;
    }
    return extent;
}

uint64_t ExtentMap::Locate(uint64_t file_offset, uint64_t &contiguous) const {
    const Extent &extent = extents_[Find(file_offset / UNIT_SIZE)];
    const uint64_t into = file_offset - extent.file_unit * UNIT_SIZE;
    contiguous = extent.units * UNIT_SIZE - into;
    return extent.start * UNIT_SIZE + into;
}

std::vector<Extent> ExtentMap::Slice(uint64_t from, uint64_t to) const {
    std::vector<Extent> pieces;
    to = std::min(to, units_);
    if (from >= to) {
        return pieces;
    }
    for (size_t i = Find(from); i < extents_.size() && extents_[i].file_unit < to; i++) {
        const Extent &extent = extents_[i];
        const uint64_t begin = std::max(from, extent.file_unit);
        const uint64_t end = std::min(to, extent.file_unit + extent.units);
        pieces.push_back(Extent{begin, extent.start + (begin - extent.file_unit), end - begin});
    }
    return pieces;
}

std::vector<Extent> ExtentMap::Truncate(uint64_t units) {
    std::vector<Extent> cut = Slice(units, units_);
    if (cut.empty()) {
        return cut;
    }
    while (!extents_.empty() && extents_.back().file_unit >= units) {
        extents_.pop_back();
    }
    if (!extents_.empty()) {
        extents_.back().units = units - extents_.back().file_unit;
    }
    units_ = units;
    slots_.resize((units_ + (uint64_t(1) << slot_shift_) - 1) >> slot_shift_);
    return cut;
}

std::vector<Extent> ExtentMap::Remap(const Extent &moved) {
    const uint64_t end = moved.file_unit + moved.units;
    std::vector<Extent> old = Slice(moved.file_unit, end);
    const size_t first = Find(moved.file_unit);
    const size_t last = Find(end - 1);
    std::vector<Extent> pieces = Slice(extents_[first].file_unit, moved.file_unit);
    pieces.push_back(moved);
    const std::vector<Extent> behind = Slice(end, extents_[last].file_unit + extents_[last].units);
    pieces.insert(pieces.end(), behind.begin(), behind.end());
    const auto begin = extents_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto position = extents_.erase(begin, begin + static_cast<std::ptrdiff_t>(last - first + 1));
    extents_.insert(position, pieces.begin(), pieces.end());
    slots_.clear(); // the indices behind these moved
    Reindex();
    return old;
}

Unit ExtentMap::End() const {
    return extents_.empty() ? Unit{0} : static_cast<Unit>(extents_.back().start + extents_.back().units);
}

} // namespace rawduck
