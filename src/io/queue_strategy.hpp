//! Which queue serves which request: the strategies of the papers behind one interface.
//!
//! sync and thread give each thread a queue of its own (ThreadQueues); single and pool share queues under a
//! lock (SharedQueues). Whatever the strategy, a request has its queue to itself and has drained it when it
//! gives it back, so no completion ever meets another request's.
#pragma once

#include "io/request_queue.hpp"

#include <mutex>

namespace rawduck {

//! A queue that is the holder's alone until the lease ends. Used by one thread.
struct QueueLease {
    RequestQueue *queue = nullptr;
    size_t index = 0;                  //!< among the shared queues
    std::unique_lock<std::mutex> lock; //!< of a shared queue; a thread's own needs none
};

//! Thread-safe.
class QueueStrategy {
  public:
    virtual ~QueueStrategy() = default;
    //! Makes the queue when there is none yet. Throws Error IO when it cannot be made.
    virtual QueueLease Acquire() = 0;
    //! Gives up a leased queue that has broken; the next lease gets a new one.
    virtual void Discard(QueueLease &lease) = 0;
    //! Destroys all queues, then the device. No lease may be out.
    virtual void Close() = 0;
    virtual Device &GetDevice() = 0;
    //! Memory that the bounce pools of all queues hold.
    uint64_t BounceBytes() const { return bounce_memory_.Held(); }

  protected:
    //! What the bounce pools of all queues of one target may take together, besides one chunk each.
    static constexpr uint64_t BOUNCE_BYTES_MAX = 12 * MIB;
    BounceMemory bounce_memory_{BOUNCE_BYTES_MAX};
};

} // namespace rawduck
