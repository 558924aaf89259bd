//! How fast operations were in the last minute, measured while they run.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

namespace rawduck_ceph {

//! Bytes by the time in which at least one operation was in flight: of concurrent operations, the rate of all
//! of them together. What is older than two periods does not count, so that a link or an OSD that was slow
//! once is tried again. Thread-safe.
class RunningRate {
  public:
    using Clock = std::chrono::steady_clock;
    //! The current period and the one before it count.
    static constexpr std::chrono::seconds PERIOD{30};
    //! With fewer bytes, the time is that of single small operations, which says nothing about throughput.
    static constexpr uint64_t MEASURED_BYTES_MIN = 4 << 20;

    void Started(Clock::time_point now = Clock::now()) {
        std::lock_guard<std::mutex> lock(mutex_);
        Advance(now);
        if (in_flight_++ == 0) {
            spell_ = Times();
            spell_works_ = false;
        }
    }
    //! `cpu_us`: processor time that the operation took in the OSD, where it is known.
    void Ended(uint64_t bytes, uint64_t cpu_us = 0, Clock::time_point now = Clock::now()) {
        std::lock_guard<std::mutex> lock(mutex_);
        Advance(now);
        in_flight_--;
        current_.bytes += bytes;
        current_.cpu_us += cpu_us;
        spell_works_ = true;
    }
    //! The operation had nothing to do. Its time does not count, unless others had something to do meanwhile.
    void EndedWithoutWork(Clock::time_point now = Clock::now()) {
        std::lock_guard<std::mutex> lock(mutex_);
        Advance(now);
        if (--in_flight_ == 0 && !spell_works_) {
            current_.times.busy -= spell_.busy;
            current_.times.operations -= spell_.operations;
        }
    }

    struct Cost {
        double wall_s_per_byte = 0;
        double cpu_s_per_byte = 0;
        double in_flight = 0; //!< operations, on average while there was one; 0 where it is not known
    };
    //! The result of a trial; holds for a period, or until enough was measured.
    void SetTrial(double wall_s_per_byte, Clock::time_point now = Clock::now()) {
        std::lock_guard<std::mutex> lock(mutex_);
        trial_s_per_byte_ = wall_s_per_byte;
        trial_valid_until_ = now + PERIOD;
    }
    //! False, and `cost` unchanged, when too little was measured.
    bool TryGet(Cost &cost, Clock::time_point now = Clock::now()) {
        std::lock_guard<std::mutex> lock(mutex_);
        Advance(now);
        const auto bytes = static_cast<double>(current_.bytes + previous_.bytes);
        if (bytes < static_cast<double>(MEASURED_BYTES_MIN)) {
            if (now < trial_valid_until_) {
                cost = {trial_s_per_byte_, 0, 0};
                return true;
            }
            return false;
        }
        const std::chrono::duration<double> busy = current_.times.busy + previous_.times.busy;
        const std::chrono::duration<double> operations =
            current_.times.operations + previous_.times.operations;
        cost.wall_s_per_byte = busy.count() / bytes;
        cost.in_flight = busy.count() > 0 ? operations.count() / busy.count() : 0;
        cost.cpu_s_per_byte = static_cast<double>(current_.cpu_us + previous_.cpu_us) / 1e6 / bytes;
        return true;
    }

  private:
    struct Times {
        Clock::duration busy{0};       //!< an operation was in flight
        Clock::duration operations{0}; //!< that of all operations added up
    };
    struct Sums {
        uint64_t bytes = 0;
        uint64_t cpu_us = 0;
        Times times;
    };

    //! Adds the time since the last call if operations were in flight; starts a new period when it is time.
    void Advance(Clock::time_point now) {
        if (in_flight_ > 0) {
            for (Times *times : {&current_.times, &spell_}) {
                times->busy += now - advanced_to_;
                times->operations += (now - advanced_to_) * in_flight_;
            }
        }
        advanced_to_ = now;
        if (now - period_start_ > PERIOD) {
            previous_ = now - period_start_ > 2 * PERIOD ? Sums() : current_;
            current_ = Sums();
            spell_ = Times();
            period_start_ = now;
        }
    }

    std::mutex mutex_; //!< guards what follows; no other lock is taken while it is held
    int64_t in_flight_ = 0;
    Clock::time_point advanced_to_, period_start_, trial_valid_until_;
    double trial_s_per_byte_ = 0;
    Sums current_, previous_;
    Times spell_;              //!< of those of current_, since nothing was in flight
    bool spell_works_ = false; //!< an operation of this time had something to do
};

} // namespace rawduck_ceph
