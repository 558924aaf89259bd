//! The queues of one target, each owned by the thread that first asked for it: no lock on the path, and a
//! ring that insists on one submitter gets its way.
//!
//! A queue dies with its thread or with this object, whichever goes first. Both happen under the mutex, and
//! both while nothing is in flight, because every request drains its commands before it returns. Threads that
//! are ending, whose queues are gone, share one.
#pragma once

#include "io/queue_strategy.hpp"

#include <list>

namespace rawduck {

struct ThreadCache;

class ThreadQueues final : public QueueStrategy, public std::enable_shared_from_this<ThreadQueues> {
  public:
    ThreadQueues(std::unique_ptr<Device> device, uint32_t depth);

    //! The calling thread's queue, made at its first call. Valid until Close or the end of the thread. Once
    //! its thread_local objects are being destroyed, it gets one for this request.
    QueueLease Acquire() override;
    void Discard(QueueLease &lease) override;
    void Close() override;
    Device &GetDevice() override { return *device_; }

  private:
    friend struct ThreadCache;
    RequestQueue *Mine(ThreadCache &cache);
    void Release(RequestQueue *queue);

    const uint64_t id_; //!< unique in the process: addresses are reused, ids are not
    const uint32_t depth_;
    std::unique_ptr<Device> device_;
    std::mutex mutex_;
    std::list<std::unique_ptr<RequestQueue>> queues_;
    std::mutex ending_mutex_;
    std::unique_ptr<RequestQueue> ending_; //!< of threads that are ending, each while it holds the mutex
};

} // namespace rawduck
