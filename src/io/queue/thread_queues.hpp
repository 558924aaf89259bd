//! The queues of one target, each owned by the thread that first asked for it: no lock on the I/O path, and
//! rings can be set up for a single submitter.
//!
//! A queue dies with its thread or with this object, whichever goes first. Both happen under the mutex, and
//! both while nothing is in flight, because every request drains its commands before it returns.
//!
//! A thread that gets no queue, or is ending and has lost its own, shares queues with other such threads
//! (SharedSlots).
#pragma once

#include "io/queue/shared_queues.hpp"

#include <list>

namespace rawduck {

struct ThreadCache;

class ThreadQueues final : public QueueStrategy, public std::enable_shared_from_this<ThreadQueues> {
  public:
    ThreadQueues(std::unique_ptr<Device> device, uint32_t depth);

    //! The calling thread's queue, made at its first call and valid until Close or the end of the thread; or
    //! one that it shares, for this request.
    QueueLease Acquire() override;
    void Discard(QueueLease &lease) override;
    void Close() override;

  private:
    friend struct ThreadCache;
    //! The calling thread's queue, made if need be; null when none can be made.
    RequestQueue *OwnQueue(ThreadCache &cache);
    void Release(RequestQueue *queue);

    const uint64_t id_; //!< unique in the process: addresses are reused, ids are not
    //! Guards queues_. Not held during I/O; the mutexes of shared slots are taken under it (Close).
    std::mutex mutex_;
    std::list<std::unique_ptr<RequestQueue>> queues_;
    SharedSlots shared_;
};

} // namespace rawduck
