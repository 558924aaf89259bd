#include "common/memory/recent_growth.hpp"

namespace rawduck {

bool RecentGrowth::Note(uint64_t value, Clock::time_point now) {
    const Clock::rep time = now.time_since_epoch().count();
    const Clock::rep until = (now + recently_).time_since_epoch().count();
    const bool is_larger = value > last_.exchange(value, std::memory_order_relaxed);
    if (time < known_until_.exchange(until, std::memory_order_relaxed) && is_larger) {
        recent_until_.store(until, std::memory_order_relaxed);
    }
    return time < recent_until_.load(std::memory_order_relaxed);
}

} // namespace rawduck
