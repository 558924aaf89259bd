//! How much of an op thread's time the object class may take.
#pragma once

#include <algorithm>
#include <chrono>

namespace rawduck_ceph {

//! Of one op thread. While a call runs, other operations on its placement group and its shard wait. Calls are
//! refused, which takes microseconds, while those before have taken more than their share: so a line of calls
//! delays another client's operation not longer than the reserve and one call, however long the line is.
class TimeBudget {
  public:
    using Clock = std::chrono::steady_clock;
    //! Taken at once after a pause.
    static constexpr std::chrono::microseconds RESERVE{12000};
    //! Share of the time, in percent, that calls may take for ever.
    static constexpr int SHARE_PERCENT = 50;

    bool IsSpent(Clock::time_point now) {
        const auto gained =
            std::chrono::duration_cast<std::chrono::microseconds>(now - refilled_) * SHARE_PERCENT / 100;
        left_ = std::min(RESERVE, left_ + std::min(gained, 2 * RESERVE));
        refilled_ = now;
        return left_.count() <= 0;
    }
    void Spend(Clock::duration time) { left_ -= std::chrono::duration_cast<std::chrono::microseconds>(time); }

  private:
    std::chrono::microseconds left_ = RESERVE;
    Clock::time_point refilled_;
};

} // namespace rawduck_ceph
