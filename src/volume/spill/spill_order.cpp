#include "volume/spill/spill_order.hpp"

#include <algorithm>
#include <new>

namespace rawduck {

namespace {
//! Found by replaying the order in which TPC-H SF1 was sorted and grouped with little memory: more blocks, or
//! from farther behind, are more often prefetched in vain; fewer are prefetched too late.
constexpr size_t PREFETCH_BLOCKS = 4;
constexpr uint64_t PREFETCH_DISTANCE = 8;
} // namespace

void SpillOrder::Written(uint64_t device_offset, uint32_t length) noexcept {
    if (blocks_.size() == BLOCKS_MAX) {
        DropOldest();
    }
    try {
        blocks_.push_back({device_offset, 0});
        sequence_[device_offset] = first_ + blocks_.size() - 1;
    } catch (const std::bad_alloc &) {
        return; // of length 0, as one that was forgotten
    }
    blocks_.back().length = length;
}

void SpillOrder::DropOldest() {
    const Block &oldest = blocks_.front();
    if (oldest.length > 0) {
        sequence_.erase(oldest.device_offset);
    }
    blocks_.pop_front();
    first_++;
}

void SpillOrder::Forget(uint64_t device_offset, uint64_t length) {
    auto entry = sequence_.lower_bound(device_offset);
    if (entry != sequence_.begin()) {
        const Block &before = At(std::prev(entry)->second);
        if (before.device_offset + before.length > device_offset) {
            entry = std::prev(entry);
        }
    }
    while (entry != sequence_.end() && entry->first < device_offset + length) {
        At(entry->second).length = 0;
        entry = sequence_.erase(entry);
    }
}

std::vector<DeviceRange> SpillOrder::Read(uint64_t device_offset) {
    std::vector<DeviceRange> ahead;
    const auto entry = sequence_.find(device_offset);
    if (entry == sequence_.end()) {
        return ahead;
    }
    const uint64_t sequence = entry->second;
    const uint64_t end = std::min<uint64_t>(sequence + 1 + PREFETCH_DISTANCE, first_ + blocks_.size());
    for (uint64_t next = sequence + 1; next < end && ahead.size() < PREFETCH_BLOCKS; next++) {
        const Block &block = At(next);
        if (block.length > 0) {
            ahead.push_back({block.device_offset, block.length});
        }
    }
    At(sequence).length = 0;
    sequence_.erase(entry);
    return ahead;
}

} // namespace rawduck
