//! Memory of the system that nobody uses, for what can be given back: who takes some asks here first, and asks
//! again and again whether others need it.
//!
//! Nothing is booked: what other volumes, processes and the page cache took shows in what the system has available.
//! A reserve stays free at each level: a sixteenth of the machine, or of a control group's limit, within 64 MiB and
//! 4 GiB. Of the rest nobody holds more than a quarter, so that others who suddenly take much find three times as much
//! as has to be given back.
//! Between two looks at the system, an eighth of what is free may be taken at most, so that several processes which look
//! at the same time do not take it together.
#pragma once

#include "common/units.hpp"
#include "target/system/available_memory.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace rawduck {

//! Thread-safe.
class MemorySupply {
  public:
    using Clock = std::chrono::steady_clock;
    using Source = std::function<std::vector<MemoryLevel>()>;

    explicit MemorySupply(Source source);
    //! The one of this process, which is never destroyed. A child made by fork() has its own. Throws
    //! std::bad_alloc.
    static MemorySupply &OfProcess();
    //! What is kept free of a level of that size.
    static uint64_t ReserveBytes(uint64_t total_bytes);

    //! Whether the caller, who holds `held_bytes`, may take so much more.
    bool TryTake(uint64_t bytes, uint64_t held_bytes);
    //! What is free beyond the reserve, as of the last look.
    uint64_t RoomBytes() const { return room_; }
    //! What who holds `held_bytes` may hold altogether, as of the last look.
    uint64_t CapacityBytes(uint64_t held_bytes) const { return (held_bytes + room_) / HELD_SHARE; }
    //! Looks at the system. Returns what the caller, who holds `held_bytes`, must give back now. Who asks next is
    //! not told to give back what is missing of the reserve once more, until the next look.
    uint64_t ToGiveBack(uint64_t held_bytes);
    //! How long who holds memory may wait before it asks again.
    std::chrono::milliseconds Interval() const;

  private:
    //! Of what is held and what is free together, this share may be held.
    static constexpr uint64_t HELD_SHARE = 4;

    void Look(Clock::time_point now);
    bool IsPressed(const MemoryLevel &level, Clock::time_point now);
    //! Whether so much more may be taken before the next look.
    bool IsWithinShare(uint64_t bytes) const;
    bool Allows(uint64_t bytes, uint64_t held_bytes) const;

    struct Stall {
        uint64_t stalled_us;
        Clock::time_point at;
        bool pressed;
    };

    std::mutex mutex_; //!< guards what follows; no other lock is taken while it is held
    const Source source_;
    Clock::time_point looked_at_;
    bool has_looked_ = false, has_said_ = false; //!< said: what is available
    bool is_known_ = false;                      //!< it was said at the last look
    uint64_t taken_ = 0;                         //!< since then
    uint64_t missing_ = 0;                       //!< of the reserve, and nobody was told to give it back
    bool pressed_ = false;                //!< tasks wait for memory and little is left, or nothing is known
    std::map<std::string, Stall> stalls_; //!< by level
    std::atomic<uint64_t> room_{0};
};

} // namespace rawduck
