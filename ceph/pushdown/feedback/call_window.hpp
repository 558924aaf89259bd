//! How many calls of the object class are in flight in a pool, over all scans of the process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>

namespace rawduck_ceph {

//! A congestion window. librados does not say which OSD an object is on, but an OSD rejects calls when it
//! is busy: each rejection shrinks the window, other replies grow it slowly, so that about one call in
//! three is rejected. Thread-safe.
class CallWindow {
  public:
    static constexpr double INITIAL = 8;
    static constexpr double MIN = 4;
    static constexpr double MAX = 1024;
    static constexpr double INCREASE = 0.25;
    static constexpr double DECREASE = 0.5;

    //! False when the window is full, or `in_flight_max` calls are in flight.
    bool TryEnter(size_t in_flight_max) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (in_flight_ >= in_flight_max || in_flight_ >= static_cast<size_t>(size_)) {
            return false;
        }
        in_flight_++;
        return true;
    }

    //! `busy`: the OSD rejected the call.
    void Leave(bool busy) {
        std::lock_guard<std::mutex> lock(mutex_);
        const bool was_full = in_flight_ + 1 >= static_cast<size_t>(size_);
        in_flight_--;
        if (busy) {
            size_ = std::max(size_ - DECREASE, MIN);
        } else if (was_full) {
            size_ = std::min(size_ + INCREASE, MAX);
        }
    }

    size_t Size() const {
        std::lock_guard<std::mutex> lock(mutex_);
        return static_cast<size_t>(size_);
    }

  private:
    mutable std::mutex mutex_; //!< guards what follows; no other lock is taken while it is held
    double size_ = INITIAL;
    size_t in_flight_ = 0;
};

} // namespace rawduck_ceph
