//! How many class calls are out at a time in a pool, whoever makes them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>

namespace rawduck_ceph {

//! librados does not say which OSD an object is on, but OSDs say when they have enough to do: the window
//! narrows with every such answer and widens slowly with the others, so that about one call in three finds
//! its OSD busy. Shared by all scans of a pool. Thread-safe.
class CallWindow {
  public:
    static constexpr double FIRST = 8;
    static constexpr double LEAST = 4;
    static constexpr double MOST = 1024;
    static constexpr double WIDER = 0.25;
    static constexpr double NARROWER = 0.5;

    //! False: it is full, or holds `most` calls already.
    bool TryEnter(size_t most) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (in_flight_ >= most || in_flight_ >= static_cast<size_t>(size_)) {
            return false;
        }
        in_flight_++;
        return true;
    }

    void Leave(bool busy) {
        std::lock_guard<std::mutex> lock(mutex_);
        const bool was_full = in_flight_ + 1 >= static_cast<size_t>(size_);
        in_flight_--;
        if (busy) {
            size_ = std::max(size_ - NARROWER, LEAST);
        } else if (was_full) {
            size_ = std::min(size_ + WIDER, MOST);
        }
    }

    size_t Size() const {
        std::lock_guard<std::mutex> lock(mutex_);
        return static_cast<size_t>(size_);
    }

  private:
    mutable std::mutex mutex_;
    double size_ = FIRST;
    size_t in_flight_ = 0;
};

} // namespace rawduck_ceph
