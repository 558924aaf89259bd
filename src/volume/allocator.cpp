#include "volume/allocator.hpp"

#include "common/invariant.hpp"

#include <algorithm>
#include <iterator>

namespace rawduck {

Allocator::Allocator(Unit begin, Unit end)
    : begin_(Index(begin)), end_(Index(end)), total_units_(end_ - begin_) {
    if (total_units_ > 0) {
        Insert(begin_, total_units_);
    }
}

void Allocator::Insert(uint64_t start, uint64_t units) {
    RAWDUCK_INVARIANT(units > 0 && start >= begin_ && start + units <= end_,
                      "free space lies in the data area");
    const auto entry = by_start_.emplace(start, units).first;
    try {
        by_units_.emplace(units, start);
    } catch (...) {
        by_start_.erase(entry); // not free for now, rather than in one of the two only
        throw;
    }
    free_units_ += units;
    RAWDUCK_INVARIANT(by_start_.size() == by_units_.size() && free_units_ <= total_units_,
                      "both views of the free space agree");
}

void Allocator::Erase(std::map<uint64_t, uint64_t>::iterator entry) {
    free_units_ -= entry->second;
    by_units_.erase({entry->second, entry->first});
    by_start_.erase(entry);
}

Allocator::Result Allocator::Take(std::map<uint64_t, uint64_t>::iterator entry, uint64_t start,
                                  uint64_t units) {
    const uint64_t free_start = entry->first;
    const uint64_t free_end = entry->first + entry->second;
    RAWDUCK_INVARIANT(units > 0 && start >= free_start && start + units <= free_end,
                      "what is given out is free");
    Erase(entry);
    if (start > free_start) {
        Insert(free_start, start - free_start);
    }
    if (start + units < free_end) {
        Insert(start + units, free_end - start - units);
    }
    return Result{static_cast<Unit>(start), units};
}

bool Allocator::Claim(Unit start, uint64_t units) {
    const uint64_t first = Index(start);
    auto entry = by_start_.upper_bound(first);
    if (units == 0 || units > total_units_ || entry == by_start_.begin()) {
        return false;
    }
    --entry;
    if (first < entry->first || first + units > entry->first + entry->second) {
        return false;
    }
    Take(entry, first, units);
    return true;
}

Allocator::Result Allocator::Allocate(uint64_t wanted, Unit hint, bool from_the_end, uint64_t keep_free) {
    const uint64_t available = free_units_ - std::min(free_units_, keep_free);
    wanted = std::min(wanted, available);
    if (wanted == 0) {
        return Result{};
    }
    auto contiguous = by_start_.find(Index(hint));
    if (contiguous != by_start_.end()) {
        return Take(contiguous, contiguous->first, std::min(wanted, contiguous->second));
    }
    auto fitting = by_units_.lower_bound({wanted, 0});
    if (fitting == by_units_.end()) {
        const auto largest = *by_units_.rbegin();
        return Take(by_start_.find(largest.second), largest.second, largest.first);
    }
    // Long-lived files fill the volume from its start and temporary ones from its end, so that the large free
    // extents between them last. Among extents that fit, the best fit keeps the largest ones whole.
    auto entry = by_start_.find(fitting->second);
    if (from_the_end) {
        auto last = std::prev(by_start_.end());
        entry = last->second >= wanted ? last : entry;
        return Take(entry, entry->first + entry->second - wanted, wanted);
    }
    auto first = by_start_.begin();
    entry = first->second >= wanted ? first : entry;
    return Take(entry, entry->first, wanted);
}

bool Allocator::Free(Unit start, uint64_t units) {
    uint64_t first = Index(start);
    uint64_t last = first + units;
    if (units == 0 || first < begin_ || last > end_ || last < first) {
        return false;
    }
    auto next = by_start_.lower_bound(first);
    if (next != by_start_.end() && next->first < last) {
        return false;
    }
    if (next != by_start_.begin()) {
        auto previous = std::prev(next);
        const uint64_t previous_end = previous->first + previous->second;
        if (previous_end > first) {
            return false;
        }
        if (previous_end == first) {
            first = previous->first;
            Erase(previous);
        }
    }
    if (next != by_start_.end() && next->first == last) {
        last = next->first + next->second;
        Erase(next);
    }
    Insert(first, last - first);
    return true;
}

std::vector<Allocator::Result> Allocator::FreeParts(Unit start, uint64_t units) const {
    const uint64_t first = Index(start), last = first + units;
    std::vector<Result> parts;
    auto entry = by_start_.upper_bound(first);
    if (entry != by_start_.begin()) {
        --entry;
    }
    for (; entry != by_start_.end() && entry->first < last; ++entry) {
        const uint64_t begin = std::max(first, entry->first);
        const uint64_t end = std::min(last, entry->first + entry->second);
        if (begin < end) {
            parts.push_back({static_cast<Unit>(begin), end - begin});
        }
    }
    return parts;
}

uint64_t Allocator::LargestFree() const {
    return by_units_.empty() ? 0 : by_units_.rbegin()->first;
}

} // namespace rawduck
