//! The parts of librados with a lifetime, released in the right order.
#pragma once

#include "ceph/rados/connection/rados_credentials.hpp"

#include <condition_variable>
#include <mutex>
#include <rados/librados.h>
#include <string>

namespace rawduck_ceph {

//! A limit on what is in flight at the same time. Thread-safe.
class InFlightGate {
  public:
    explicit InFlightGate(int limit) : free_(limit) {}

    void Enter() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return free_ > 0; });
        free_--;
    }
    void Leave() {
        // Notified under the lock: whoever waits may destroy the gate when it is let in.
        std::lock_guard<std::mutex> lock(mutex_);
        free_++;
        changed_.notify_one();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int free_;
};

//! A connected rados_t. Shut down when the last pool that uses it goes away.
class RadosHandle {
  public:
    //! Of one connection; more makes reads of other clients wait, and fills the link no better.
    static constexpr int READS_IN_FLIGHT_MAX = 32;

    //! Throws Error.
    explicit RadosHandle(const RadosCredentials &credentials);
    ~RadosHandle();
    RadosHandle(const RadosHandle &) = delete;
    RadosHandle &operator=(const RadosHandle &) = delete;

    rados_t Get() const { return cluster_; }
    //! Throws Error INVALID in a child of the process that connected: librados' threads are not there.
    void RequireSameProcess(const std::string &target) const;

    InFlightGate reads{READS_IN_FLIGHT_MAX};

  private:
    void Configure(const RadosCredentials &credentials);
    void Set(const char *option, const std::string &value, const std::string &who);

    rados_t cluster_ = nullptr;
    const int process_;
};

//! An operation in flight. Waits for its end when it is
//! destroyed, since librados writes into its caller's memory.
class RadosCompletion {
  public:
    //! `callback` may be null; it runs on a thread of librados.
    RadosCompletion(void *argument, rados_callback_t callback);
    ~RadosCompletion();
    RadosCompletion(const RadosCompletion &) = delete;
    RadosCompletion &operator=(const RadosCompletion &) = delete;

    rados_completion_t Get() const { return completion_; }
    //! Call it when the operation was given to librados.
    void Started() { started_ = true; }
    //! Returns what the operation returned, a negative errno for an error.
    int Wait();
    uint64_t Version() const { return rados_aio_get_version(completion_); }

  private:
    rados_completion_t completion_ = nullptr;
    bool started_ = false;
};

} // namespace rawduck_ceph
