#include "volume/spill/memory_supply.hpp"

#include "common/process/fork_generation.hpp"

#include <algorithm>
#include <memory>
#include <new>

namespace rawduck {

namespace {

constexpr uint64_t RESERVE_SHARE = 16, RESERVE_MIN = 64 * MIB, RESERVE_MAX = 4 * GIB;
//! Of what is there beyond the reserve, this share may be taken until the next look; or so many bytes.
constexpr uint64_t TAKE_SHARE = 8, TAKE_MIN = 4 * MIB;
//! Who holds more than may be held by this share of it gives that back.
constexpr uint64_t TOO_MUCH_SHARE = 8;
//! Memory is given back when less than this share of the reserve is left, and then until there is all of it.
constexpr uint64_t LOW_NUMERATOR = 3, LOW_DENOMINATOR = 4;
//! Tasks that wait for memory say something about a level only where so many reserves or fewer are left: on a
//! machine with free memory they wait for that of their own control group.
constexpr uint64_t PRESSURE_RESERVES = 4;
//! This share of the time is much.
constexpr uint64_t PRESSURE_TIME_SHARE = 10;
//! This share of what is held is given back at a time then.
constexpr uint64_t PRESSURE_HELD_SHARE = 8;
constexpr std::chrono::milliseconds INTERVAL{100}, INTERVAL_WHEN_SCARCE{20};
//! More than the fastest machine fills within INTERVAL.
constexpr uint64_t SCARCE_BYTES = 1 * GIB;

} // namespace

MemorySupply::MemorySupply(Source source) : source_(std::move(source)) {}

MemorySupply &MemorySupply::OfProcess() {
    // The parent's lock may be held by a thread that the child does not have.
    struct OfGeneration {
        const uint64_t generation = ForkGeneration();
        AvailableMemory available;
        MemorySupply supply{[this] { return available.Read(); }};
    };
    static std::atomic<OfGeneration *> current{nullptr};
    OfGeneration *known = current;
    while (!known || known->generation != ForkGeneration()) {
        auto fresh = std::make_unique<OfGeneration>();
        if (current.compare_exchange_strong(known, fresh.get())) {
            known = fresh.release();
        }
    }
    return known->supply;
}

uint64_t MemorySupply::ReserveBytes(uint64_t total_bytes) {
    return std::min(std::max(total_bytes / RESERVE_SHARE, RESERVE_MIN), RESERVE_MAX);
}

bool MemorySupply::TryTake(uint64_t bytes, uint64_t held_bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    const Clock::time_point now = Clock::now();
    if (!has_looked_ || now - looked_at_ > INTERVAL) {
        Look(now);
    } else if (!IsWithinShare(bytes) && taken_ > 0) {
        Look(now); // at most once for each such share
    }
    if (!Allows(bytes, held_bytes)) {
        return false;
    }
    taken_ += bytes;
    return true;
}

bool MemorySupply::IsWithinShare(uint64_t bytes) const {
    const uint64_t room = room_;
    return taken_ + bytes <= std::min(room, std::max(room / TAKE_SHARE, TAKE_MIN));
}

bool MemorySupply::Allows(uint64_t bytes, uint64_t held_bytes) const {
    return !pressed_ && IsWithinShare(bytes) &&
           held_bytes + bytes <= (held_bytes + room_ - taken_) / HELD_SHARE;
}

uint64_t MemorySupply::ToGiveBack(uint64_t held_bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    const Clock::time_point now = Clock::now();
    // Not for each of several volumes: none of them has given back yet what the first was told.
    if (!has_looked_ || now - looked_at_ >= INTERVAL_WHEN_SCARCE / 2) {
        Look(now);
    }
    const uint64_t of_pressure = pressed_ ? held_bytes / PRESSURE_HELD_SHARE : 0;
    const uint64_t capacity = CapacityBytes(held_bytes);
    const bool is_too_much = is_known_ && held_bytes > capacity + capacity / TOO_MUCH_SHARE;
    const uint64_t of_share = is_too_much ? held_bytes - capacity : 0;
    const uint64_t bytes = std::min(held_bytes, std::max({missing_, of_pressure, of_share}));
    missing_ -= std::min(missing_, bytes);
    return bytes;
}

std::chrono::milliseconds MemorySupply::Interval() const {
    return room_ < SCARCE_BYTES ? INTERVAL_WHEN_SCARCE : INTERVAL;
}

void MemorySupply::Look(Clock::time_point now) {
    uint64_t room = UINT64_MAX;
    missing_ = 0;
    pressed_ = false;
    std::vector<MemoryLevel> levels;
    try {
        levels = source_();
        for (const MemoryLevel &level : levels) {
            pressed_ = IsPressed(level, now) || pressed_;
        }
    } catch (const std::bad_alloc &) {
        pressed_ = true; // there can be no better sign
    }
    // The system has become silent: what is held could be what others miss.
    pressed_ = pressed_ || (levels.empty() && has_said_);
    has_said_ = has_said_ || !levels.empty();
    for (const MemoryLevel &level : levels) {
        const uint64_t reserve = ReserveBytes(level.total_bytes);
        room = std::min(room, level.available_bytes - std::min(level.available_bytes, reserve));
        if (level.available_bytes < reserve / LOW_DENOMINATOR * LOW_NUMERATOR) {
            missing_ = std::max(missing_, reserve - level.available_bytes);
        }
    }
    is_known_ = !levels.empty();
    room_ = is_known_ ? room : 0;
    looked_at_ = now;
    has_looked_ = true;
    taken_ = 0;
}

// Over at least INTERVAL: shorter stalls say little.
bool MemorySupply::IsPressed(const MemoryLevel &level, Clock::time_point now) {
    if (!level.stalled_us) {
        return false;
    }
    const auto [known, is_new] = stalls_.try_emplace(level.name, Stall{*level.stalled_us, now, false});
    Stall &stall = known->second;
    if (!is_new && now - stall.at >= INTERVAL) {
        const auto passed_us = static_cast<uint64_t>(
            std::chrono::duration_cast<std::chrono::microseconds>(now - stall.at).count());
        const uint64_t stalled_us = *level.stalled_us - std::min(stall.stalled_us, *level.stalled_us);
        stall = {*level.stalled_us, now, stalled_us * PRESSURE_TIME_SHARE > passed_us};
    }
    return stall.pressed && level.available_bytes < PRESSURE_RESERVES * ReserveBytes(level.total_bytes);
}

} // namespace rawduck
