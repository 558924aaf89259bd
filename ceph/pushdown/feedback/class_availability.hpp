//! Whether the OSDs of a pool execute the calls of the object class that a user makes.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

namespace rawduck_ceph {

//! Of one pool and one connection. Thread-safe.
class ClassAvailability {
  public:
    //! An unavailable class is tried again after this time: it may have been installed, or the user allowed.
    static constexpr std::chrono::seconds RETRY_AFTER{60};

    void SetAvailable() { confirmed_ = true; }
    //! Whether a call has ever succeeded.
    bool IsConfirmed() const { return confirmed_; }

    //! No OSD of the pool executes calls.
    void SetUnavailable(const std::string &reason) {
        std::lock_guard<std::mutex> lock(mutex_);
        unavailable_until_ = std::chrono::steady_clock::now() + RETRY_AFTER;
        reason_ = reason;
    }
    //! Empty when the class may be called.
    std::string UnavailableReason() const {
        std::lock_guard<std::mutex> lock(mutex_);
        return std::chrono::steady_clock::now() < unavailable_until_ ? reason_ : "";
    }

  private:
    std::atomic<bool> confirmed_{false};
    mutable std::mutex mutex_; //!< guards what follows; no other lock is taken while it is held
    std::chrono::steady_clock::time_point unavailable_until_;
    std::string reason_;
};

} // namespace rawduck_ceph
