//! The queues of one target, each owned by the thread that first asked for it: no lock on the path, and a
//! ring that insists on one submitter gets its way.
//!
//! A queue dies with its thread or with this object, whichever goes first. Both happen under the mutex, and
//! both while nothing is in flight, because every request drains its commands before it returns.
#pragma once

#include "io/bounce_pool.hpp"
#include "io/device.hpp"

#include <list>
#include <memory>
#include <mutex>
#include <vector>

namespace rawduck {

//! One command of a request, with what is needed to finish it.
struct CommandSlot {
    Command command;
    char *user = nullptr;  //!< where the piece lies in the caller's memory
    char *chunk = nullptr; //!< where it lies in the bounce pool; nullptr when it is transferred in place
    uint32_t length = 0; //!< of the piece, bytes; the command shrinks to the remainder after a short transfer
    uint32_t attempts = 0; //!< submissions since the last progress
    uint32_t depth = 0;    //!< commands in flight at submission, this one included
};

//! What a thread needs to run requests on one target.
struct ThreadQueue {
    ThreadQueue(Device &device, uint32_t wanted_depth, BounceBudget &budget);

    std::unique_ptr<Queue> queue;
    BouncePool bounce;
    std::vector<CommandSlot> slots; //!< as many as the queue is deep
    std::vector<CommandSlot *> idle;
    std::vector<CommandSlot *> resubmit; //!< scratch of a running request, here for their capacity
    std::vector<Command *> reaped;
    bool broken = false; //!< the queue itself failed; it is replaced before the next request
};

class ThreadQueues : public std::enable_shared_from_this<ThreadQueues> {
  public:
    ThreadQueues(std::unique_ptr<Device> device, uint32_t depth);

    //! The calling thread's queue, made at its first call. Valid until Close or the end of the thread.
    ThreadQueue &Mine();
    //! Gives up the calling thread's queue; the next Mine makes a new one.
    void DiscardMine();
    //! Destroys all queues, then the device. No request may be running.
    void Close();
    Device &GetDevice() { return *device_; }

  private:
    friend struct ThreadCache;
    void Release(ThreadQueue *queue);

    const uint64_t id_; //!< unique in the process: addresses are reused, ids are not
    const uint32_t depth_;
    BounceBudget budget_;
    std::unique_ptr<Device> device_;
    std::mutex mutex_;
    std::list<std::unique_ptr<ThreadQueue>> queues_;
};

} // namespace rawduck
