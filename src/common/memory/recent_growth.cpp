#include "common/memory/recent_growth.hpp"

namespace rawduck {

bool RecentGrowth::Note(uint64_t value, Clock::time_point now) {
    if (value > last_.exchange(value, std::memory_order_relaxed)) {
        recent_until_.store((now + recently_).time_since_epoch().count(), std::memory_order_relaxed);
    }
    return now.time_since_epoch().count() < recent_until_.load(std::memory_order_relaxed);
}

} // namespace rawduck
