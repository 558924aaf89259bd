//! How fast something goes lately, from what is counted while it happens.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

namespace rawduck_ceph {

//! Bytes per second of time in which at least one operation was in flight: of operations side by side, the
//! speed of all of them together. What is older than a minute does not count, so that a link or an OSD that
//! was slow once is tried again. Thread-safe.
class RunningRate {
  public:
    using Clock = std::chrono::steady_clock;
    //! Of a period; the last one and the one before it count.
    static constexpr std::chrono::seconds PERIOD{30};
    //! With less, the time is that of single small operations, and says nothing about the speed of many.
    static constexpr uint64_t KNOWN_BYTES = 4 << 20;

    void Started(Clock::time_point now = Clock::now()) {
        std::lock_guard<std::mutex> lock(mutex_);
        TakeTime(now);
        in_flight_++;
    }
    //! `cpu_us`: of whoever did the work, where that is known.
    void Ended(uint64_t bytes, uint64_t cpu_us = 0, Clock::time_point now = Clock::now()) {
        std::lock_guard<std::mutex> lock(mutex_);
        TakeTime(now);
        in_flight_--;
        current_.bytes += bytes;
        current_.cpu_us += cpu_us;
    }

    struct Cost {
        double wall_s_per_byte = 0;
        double cpu_s_per_byte = 0;
    };
    //! What a trial has shown; counts for a period, or until more is known.
    void Suppose(double wall_s_per_byte, Clock::time_point now = Clock::now()) {
        std::lock_guard<std::mutex> lock(mutex_);
        supposed_s_per_byte_ = wall_s_per_byte;
        supposed_until_ = now + PERIOD;
    }
    //! False: not enough is known.
    bool Known(Cost &cost, Clock::time_point now = Clock::now()) {
        std::lock_guard<std::mutex> lock(mutex_);
        TakeTime(now);
        const auto bytes = static_cast<double>(current_.bytes + last_.bytes);
        if (bytes < static_cast<double>(KNOWN_BYTES)) {
            if (now < supposed_until_) {
                cost = {supposed_s_per_byte_, 0};
                return true;
            }
            return false;
        }
        const std::chrono::duration<double> busy = current_.busy + last_.busy;
        cost.wall_s_per_byte = busy.count() / bytes;
        cost.cpu_s_per_byte = static_cast<double>(current_.cpu_us + last_.cpu_us) / 1e6 / bytes;
        return true;
    }

  private:
    struct Sums {
        uint64_t bytes = 0;
        uint64_t cpu_us = 0;
        Clock::duration busy{0};
    };

    void TakeTime(Clock::time_point now) {
        if (in_flight_ > 0) {
            current_.busy += now - seen_;
        }
        seen_ = now;
        if (now - began_ > PERIOD) {
            last_ = now - began_ > 2 * PERIOD ? Sums() : current_;
            current_ = Sums();
            began_ = now;
        }
    }

    std::mutex mutex_;
    uint64_t in_flight_ = 0;
    Clock::time_point seen_, began_, supposed_until_;
    double supposed_s_per_byte_ = 0;
    Sums current_, last_;
};

} // namespace rawduck_ceph
