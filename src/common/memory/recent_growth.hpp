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

    //! Whether `value` is larger than it was at the call before, or some value within `recently` before `now` was. Where the
    //! call before is longer ago than that, or there was none, nobody knows when it has grown: it counts as having not.
    bool Note(uint64_t value, Clock::time_point now = Clock::now());

  private:
    static constexpr Clock::rep LONG_AGO = Clock::time_point::min().time_since_epoch().count();

    const std::chrono::milliseconds recently_;
    std::atomic<uint64_t> last_{0};
    //! Of the clock. Before the first call it is too long ago to know anything.
    std::atomic<Clock::rep> known_until_{LONG_AGO}, recent_until_{LONG_AGO};
};

} // namespace rawduck
