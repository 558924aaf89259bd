//! Which queue serves which request: the strategies of the papers behind one interface.
//!
//! sync and thread give each thread a queue of its own (ThreadQueues); single and pool share queues under a
//! lock (SharedQueues). Whatever the strategy, a request has its queue to itself and has drained it when it
//! gives it back, so no completion ever meets another request's.
#pragma once

#include "io/queue/queue_supply.hpp"

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
    QueueStrategy(std::unique_ptr<Device> device, uint32_t depth)
        : device_(std::move(device)), supply_(*device_, depth) {}
    virtual ~QueueStrategy() = default;
    //! Makes the queue when there is none yet; where it cannot be made, the request shares one with others,
    //! or gets one that runs its commands one at a time.
    virtual QueueLease Acquire() = 0;
    //! Gives up a leased queue that has broken; the next lease gets a new one.
    virtual void Discard(QueueLease &lease) = 0;
    //! Destroys all queues, then the device. No lease may be out.
    virtual void Close() = 0;
    Device &GetDevice() { return *device_; }
    const QueueSupply &Supply() const { return supply_; }

  protected:
    std::unique_ptr<Device> device_;
    QueueSupply supply_; //!< not used once the device is gone
};

} // namespace rawduck
