//! Whether the OSDs of a pool answer the calls of object classes that a user makes.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

namespace rawduck_ceph {

//! Of one pool and one connection. Thread-safe.
class ClassAvailability {
  public:
    //! How long a pool that has refused is left alone: a class may be installed, a user be allowed.
    static constexpr std::chrono::seconds REFUSED_FOR{60};

    void Answered() { answered_ = true; }
    //! One answer suffices to know that the others can be asked side by side.
    bool HasAnswered() const { return answered_; }

    //! No OSD answers, or none will.
    void Refused(const std::string &why) {
        std::lock_guard<std::mutex> lock(mutex_);
        refused_until_ = std::chrono::steady_clock::now() + REFUSED_FOR;
        why_ = why;
    }
    //! Empty when nothing is known against asking.
    std::string RefusedBecause() const {
        std::lock_guard<std::mutex> lock(mutex_);
        return std::chrono::steady_clock::now() < refused_until_ ? why_ : "";
    }

  private:
    std::atomic<bool> answered_{false};
    mutable std::mutex mutex_;
    std::chrono::steady_clock::time_point refused_until_;
    std::string why_;
};

} // namespace rawduck_ceph
