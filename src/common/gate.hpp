//! A shared mutex that lets a waiting writer in before new readers.
#pragma once

#include <pthread.h>

namespace rawduck {

//! std::shared_mutex prefers readers on Linux, so scans that overlap without end would starve a checkpoint.
//! Works with std::shared_lock and std::unique_lock. A thread must not lock it shared twice.
class Gate {
  public:
    Gate() {
        pthread_rwlockattr_t attributes;
        pthread_rwlockattr_init(&attributes);
        pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
        pthread_rwlock_init(&lock_, &attributes);
        pthread_rwlockattr_destroy(&attributes);
    }
    ~Gate() { pthread_rwlock_destroy(&lock_); }
    Gate(const Gate &) = delete;
    Gate &operator=(const Gate &) = delete;

    void lock() { pthread_rwlock_wrlock(&lock_); }
    void unlock() { pthread_rwlock_unlock(&lock_); }
    void lock_shared() { pthread_rwlock_rdlock(&lock_); }
    void unlock_shared() { pthread_rwlock_unlock(&lock_); }

  private:
    pthread_rwlock_t lock_;
};

} // namespace rawduck
