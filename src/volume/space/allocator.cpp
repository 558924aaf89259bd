#include "volume/space/allocator.hpp"

#include "common/invariant.hpp"

#include <algorithm>
#include <iterator>

namespace rawduck {

Allocator::Allocator(AllocationUnit begin, AllocationUnit end)
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

void Allocator::Change(std::map<uint64_t, uint64_t>::iterator entry, uint64_t start, uint64_t units) {
    RAWDUCK_INVARIANT(units > 0 && start >= begin_ && start + units <= end_,
                      "free space lies in the data area");
    free_units_ += units;
    free_units_ -= entry->second;
    auto by_units = by_units_.extract({entry->second, entry->first});
    by_units.value() = {units, start};
    by_units_.insert(std::move(by_units));
    auto by_start = by_start_.extract(entry);
    by_start.key() = start;
    by_start.mapped() = units;
    by_start_.insert(std::move(by_start));
}

Allocator::Result Allocator::Take(std::map<uint64_t, uint64_t>::iterator entry, uint64_t start,
                                  uint64_t units) {
    const uint64_t free_start = entry->first;
    const uint64_t free_end = entry->first + entry->second;
    const uint64_t head = start - free_start, tail = free_end - start - units;
    if (head > 0 && tail > 0) {
        free_units_ -= units + tail; // counted in the whole extent
        try {
            Insert(start + units, tail); // which may throw, so it comes first
        } catch (...) {
            free_units_ += units + tail;
            throw;
        }
        free_units_ += units + tail;
    }
    if (head > 0) {
        Change(entry, free_start, head);
    } else if (tail > 0) {
        Change(entry, start + units, tail);
    } else {
        Erase(entry);
    }
    return Result{static_cast<AllocationUnit>(start), units};
}

bool Allocator::Claim(AllocationUnit start, uint64_t units) {
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

Allocator::Result Allocator::Allocate(uint64_t wanted, AllocationUnit hint, bool from_the_end,
                                      uint64_t keep_free) {
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

bool Allocator::Free(AllocationUnit start, uint64_t units) {
    const uint64_t first = Index(start);
    const uint64_t last = first + units;
    if (units == 0 || first < begin_ || last > end_ || last < first) {
        return false;
    }
    const auto next = by_start_.lower_bound(first);
    if (next != by_start_.end() && next->first < last) {
        return false;
    }
    const auto previous = next == by_start_.begin() ? by_start_.end() : std::prev(next);
    const bool has_previous = previous != by_start_.end();
    if (has_previous && previous->first + previous->second > first) {
        return false;
    }
    const bool joins_previous = has_previous && previous->first + previous->second == first;
    const bool joins_next = next != by_start_.end() && next->first == last;
    const uint64_t behind = joins_next ? next->second : 0;
    if (joins_previous) {
        if (joins_next) {
            Erase(next);
        }
        Change(previous, previous->first, previous->second + units + behind);
    } else if (joins_next) {
        Change(next, first, units + behind);
    } else {
        Insert(first, units);
    }
    return true;
}

uint64_t Allocator::LargestFree() const {
    return by_units_.empty() ? 0 : by_units_.rbegin()->first;
}

} // namespace rawduck
