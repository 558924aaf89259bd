//! librados handles as objects that release them.
#pragma once

#include "ceph/rados/connection/interruptible.hpp"
#include "ceph/rados/connection/osd_counts.hpp"
#include "ceph/rados/connection/rados_credentials.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <rados/librados.h>
#include <string>

namespace rawduck_ceph {

//! A counting semaphore that limits the operations in flight. Thread-safe.
class InFlightLimit {
  public:
    explicit InFlightLimit(int limit) : free_(limit) {}

    //! False: the thread was interrupted.
    bool Acquire() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!released_.wait_for(lock, InterruptScope::INTERVAL, [&] { return free_ > 0; })) {
            lock.unlock(); // the check may take other locks
            if (InterruptScope::IsInterrupted()) {
                return false;
            }
            lock.lock();
        }
        free_--;
        return true;
    }
    void Release() {
        // Notified under the lock: a waiting thread may destroy this object as soon as it has acquired.
        std::lock_guard<std::mutex> lock(mutex_);
        free_++;
        released_.notify_one();
    }

  private:
    std::mutex mutex_; //!< guards free_; no other lock is taken while it is held
    std::condition_variable released_;
    int free_;
};

//! A connected rados_t, shut down when the last pool that uses it is destroyed.
class RadosHandle {
  public:
    //! Of one connection. More reads delay those of other clients and do not increase the throughput.
    static constexpr int READS_IN_FLIGHT_MAX = 32;

    //! Throws Error.
    explicit RadosHandle(const RadosCredentials &credentials);
    ~RadosHandle();
    RadosHandle(const RadosHandle &) = delete;
    RadosHandle &operator=(const RadosHandle &) = delete;

    rados_t Get() const { return cluster_; }
    //! When the connection was made; nothing where the monitors did not tell.
    const std::optional<OsdCounts> &Osds() const { return osds_; }
    //! What the monitors answer to a command in JSON. Nothing where they do not, or the user may not ask.
    std::optional<std::string> AskMonitors(const std::string &command) const;
    //! Throws Error INVALID in a child of the process that connected: librados' threads are not there.
    void RequireSameProcess(const std::string &target) const;

    InFlightLimit reads{READS_IN_FLIGHT_MAX};

  private:
    void Configure(const RadosCredentials &credentials);
    void ReadConfiguration(const RadosCredentials &credentials);
    //! Returns 0 or a negative errno.
    int ReadReachingOptions(const RadosCredentials &credentials);
    void Set(const char *option, const std::string &value, const std::string &who);

    rados_t cluster_ = nullptr;
    std::optional<OsdCounts> osds_;
    const int process_;
};

//! An operation in flight. The destructor waits for it, because librados writes to the caller's memory.
class RadosCompletion {
  public:
    //! `callback` may be null; it runs on a thread of librados.
    RadosCompletion(void *argument, rados_callback_t callback);
    ~RadosCompletion();
    RadosCompletion(const RadosCompletion &) = delete;
    RadosCompletion &operator=(const RadosCompletion &) = delete;

    rados_completion_t Get() const { return completion_; }
    //! To be called when librados has accepted the operation.
    void SetStarted() { started_ = true; }
    //! Returns what the operation returned, a negative errno for an error; -ECANCELED when the thread was
    //! interrupted. `io`: of the operation.
    int Wait(rados_ioctx_t io);
    uint64_t Version() const { return rados_aio_get_version(completion_); }

  private:
    static void Ended(rados_completion_t completion, void *self);

    void *const argument_;
    const rados_callback_t callback_;
    OperationEnd end_;
    rados_completion_t completion_ = nullptr;
    bool started_ = false;
};

} // namespace rawduck_ceph
