//! Whether a number that is looked at now and then has grown of late.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace rawduck {

//! Thread-safe.
class RecentGrowth {
  public:
    using Clock = std::chrono::steady_clock;

    explicit RecentGrowth(std::chrono::milliseconds recently) : recently_(recently) {}

    //! Whether `value` is larger than it was at the call before, or some value within `recently` before `now` was. Nothing is
    //! known of what was before the first call.
    bool Note(uint64_t value, Clock::time_point now = Clock::now());

  private:
    static constexpr uint64_t UNKNOWN = ~uint64_t{0};

    const std::chrono::milliseconds recently_;
    std::atomic<uint64_t> last_{UNKNOWN};
    std::atomic<Clock::rep> recent_until_{Clock::time_point::min().time_since_epoch().count()};
};

} // namespace rawduck
