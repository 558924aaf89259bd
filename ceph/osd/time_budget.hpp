//! How much of an op thread's time the object class may take.
#pragma once

#include <algorithm>
#include <chrono>

namespace rawduck_ceph {

enum class Allowance { ALL, FETCH, NOTHING };

//! Of one op thread. While a call runs, other operations on its placement group and its shard wait. When
//! those before have taken more than their share, calls may only fetch what the helper has finished, which
//! takes a fraction of a millisecond, and then nothing: so a line of calls delays another client's operation not
//! longer than twice the reserve and one call, however long the line is.
class TimeBudget {
  public:
    using Clock = std::chrono::steady_clock;
    //! Taken at once after a pause; and as much again, for calls that only fetch.
    static constexpr std::chrono::microseconds RESERVE{12000};
    //! Share of the time, in percent, that calls may take for ever.
    static constexpr int SHARE_PERCENT = 50;

    Allowance Allowed(Clock::time_point now) {
        const auto gained =
            std::chrono::duration_cast<std::chrono::microseconds>(now - refilled_) * SHARE_PERCENT / 100;
        left_ = std::min(RESERVE, left_ + std::min(gained, 3 * RESERVE));
        refilled_ = now;
        return left_.count() > 0 ? Allowance::ALL : left_ > -RESERVE ? Allowance::FETCH : Allowance::NOTHING;
    }
    void Spend(Clock::duration time) { left_ -= std::chrono::duration_cast<std::chrono::microseconds>(time); }

  private:
    std::chrono::microseconds left_ = RESERVE;
    Clock::time_point refilled_;
};

} // namespace rawduck_ceph
