#include "volume/space/zone_candidates.hpp"

#include <algorithm>

namespace rawduck {

void ZoneCandidates::Exclude(const std::vector<Extent> &extents) noexcept {
    for (const Extent &extent : extents) {
        const uint64_t end = extent.start + extent.units;
        for (uint64_t zone = extent.start / ZONE_UNITS; zone * ZONE_UNITS < end && zone < since_.size();
             zone++) {
            since_[zone] = true;
        }
        any_since_ = true;
    }
}

void ZoneCandidates::CheckpointBegins() noexcept {
    if (!any_since_) {
        return;
    }
    for (size_t zone = 0; zone < since_.size(); zone++) {
        before_[zone] = before_[zone] || since_[zone];
    }
    std::fill(since_.begin(), since_.end(), false);
    any_since_ = false;
    any_before_ = true;
}

void ZoneCandidates::CheckpointIsDurable() noexcept {
    if (any_before_) {
        std::fill(before_.begin(), before_.end(), false);
        any_before_ = false;
    }
}

} // namespace rawduck
