#include "io/engine/vfio/dma/iova_space.hpp"

#include "common/invariant.hpp"
#include "common/units.hpp"

#include <algorithm>
#include <iterator>

namespace rawduck {
namespace {

//! Of a narrow IOMMU, below which nothing is taken: zero is what a forgotten address looks like.
constexpr uint64_t LOW_FIRST = MIB;
//! Ends are one behind the last address, and that must not wrap.
constexpr uint64_t ADDRESS_LAST = UINT64_MAX - PAGE_BYTES;

} // namespace

IovaSpace::IovaSpace(const std::vector<IovaRange> &ranges) {
    const bool high = std::any_of(ranges.begin(), ranges.end(),
                                  [](const IovaRange &range) { return range.last >= PREFERRED_FIRST + GIB; });
    for (const IovaRange &range : ranges) {
        const uint64_t first = AlignUp(
            std::max(std::min(range.first, ADDRESS_LAST), high ? PREFERRED_FIRST : LOW_FIRST), PAGE_BYTES);
        const uint64_t end = AlignDown(std::min(range.last, ADDRESS_LAST) + 1, PAGE_BYTES);
        Add(first, std::min(end, std::max(first, INTERRUPTS.first)));
        Add(std::max(first, INTERRUPTS.last + 1), end);
    }
}

void IovaSpace::Add(uint64_t first, uint64_t end) {
    if (first < end) {
        free_[first] = std::max(end, free_[first]);
    }
}

std::optional<uint64_t> IovaSpace::Take(uint64_t bytes, uint64_t alignment) {
    RAWDUCK_INVARIANT(bytes > 0 && IsAligned(bytes, PAGE_BYTES) && alignment >= PAGE_BYTES,
                      "memory is mapped in pages");
    for (auto it = free_.begin(); it != free_.end(); ++it) {
        const auto [first, end] = *it;
        const uint64_t iova = AlignUp(first, alignment);
        if (iova < first || iova >= end || end - iova < bytes) {
            continue;
        }
        free_.erase(it);
        Add(first, iova);
        Add(iova + bytes, end);
        return iova;
    }
    return std::nullopt;
}

void IovaSpace::Give(uint64_t iova, uint64_t bytes) {
    uint64_t first = iova, end = iova + bytes;
    const auto next = free_.lower_bound(first);
    RAWDUCK_INVARIANT(next == free_.end() || next->first >= end, "what is given back was taken");
    if (next != free_.end() && next->first == end) {
        end = next->second;
        free_.erase(next);
    }
    const auto behind = free_.lower_bound(first);
    if (behind != free_.begin()) {
        const auto previous = std::prev(behind);
        RAWDUCK_INVARIANT(previous->second <= first, "what is given back was taken");
        if (previous->second == first) {
            first = previous->first;
            free_.erase(previous);
        }
    }
    free_[first] = end;
}

uint64_t IovaSpace::FreeBytes() const {
    uint64_t bytes = 0;
    for (const auto &[first, end] : free_) {
        bytes += end - first;
    }
    return bytes;
}

} // namespace rawduck
