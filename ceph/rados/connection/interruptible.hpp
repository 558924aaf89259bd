//! Waits for librados that end when the query is interrupted on whose behalf a thread waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace rawduck_ceph {

//! While it lives, waits of this thread in RadosPool ask `is_interrupted` every INTERVAL, and end with an Error
//! INTERRUPTED when it says so. The innermost scope of a thread counts; without one, waits are not interrupted.
class InterruptScope {
  public:
    using Check = std::function<bool()>;
    static constexpr std::chrono::milliseconds INTERVAL{50};

    explicit InterruptScope(Check is_interrupted)
        : is_interrupted_(std::move(is_interrupted)), outer_(innermost_) {
        innermost_ = this;
    }
    ~InterruptScope() { innermost_ = outer_; }
    InterruptScope(const InterruptScope &) = delete;
    InterruptScope &operator=(const InterruptScope &) = delete;

    //! Of the calling thread.
    static bool IsInterrupted() { return innermost_ && innermost_->is_interrupted_(); }

  private:
    inline static thread_local InterruptScope *innermost_ = nullptr;

    const Check is_interrupted_;
    InterruptScope *const outer_;
};

//! The end of an operation in flight. Thread-safe.
class OperationEnd {
  public:
    void Set() {
        // Notified under the lock: a waiting thread may destroy this object as soon as it has the lock.
        std::lock_guard<std::mutex> lock(mutex_);
        ended_ = true;
        changed_.notify_all();
    }

    //! Waits for Set. Calls `cancel` once when the thread is interrupted, which must make the operation end.
    template <class CANCEL> void Wait(CANCEL cancel) {
        bool cancelled = false;
        std::unique_lock<std::mutex> lock(mutex_);
        while (!ended_) {
            const bool waited = changed_.wait_for(lock, InterruptScope::INTERVAL) == std::cv_status::timeout;
            if (waited && !ended_ && !cancelled) {
                lock.unlock(); // the check may take other locks
                cancelled = InterruptScope::IsInterrupted();
                if (cancelled) {
                    cancel();
                }
                lock.lock();
            }
        }
    }
    void Wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return ended_; });
    }

  private:
    std::mutex mutex_; //!< guards ended_; no other lock is taken while it is held
    std::condition_variable changed_;
    bool ended_ = false;
};

} // namespace rawduck_ceph
