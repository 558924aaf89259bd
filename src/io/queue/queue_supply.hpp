//! Makes the queues of one target, no more of them than are good for it and for the process.
//!
//! A ring takes a descriptor, a context of xNVMe something as scarce. DuckDB has five threads and more for
//! each processor, and a queue for each thread and target would take them away from whoever opens a file.
//! Threads that get none share some, behind locks; and where not even those can be made, they run their
//! commands themselves, one at a time.
#pragma once

#include "io/queue/request_queue.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

namespace rawduck {

//! Thread-safe. Outlives its queues.
class QueueSupply {
  public:
    //! What could not be had is asked for again so many requests later: what was in the way may be gone.
    static constexpr int32_t PAUSE_REQUESTS = 1024;

    QueueSupply(Device &device, uint32_t depth) : device_(device), depth_(depth) {}

    //! Null when there are as many as there may be, or none can be made.
    std::unique_ptr<RequestQueue> TryMake(QueueUse use);
    //! See Device::CreateSynchronousQueue.
    std::unique_ptr<RequestQueue> MakeSynchronous();

    //! Why some thread has had to do without a queue of its own since the device was opened, a clause; empty
    //! when none had.
    std::string Shortage() const;
    //! Memory that the bounce pools of all queues hold.
    uint64_t BounceBytes() const { return bounce_memory_.Held(); }

  private:
    std::unique_ptr<RequestQueue> Refuse(QueueUse use, const std::string &why);

    //! What the bounce pools of all queues may take together, besides one chunk each.
    static constexpr uint64_t BOUNCE_BYTES_MAX = 12 * MIB;

    Device &device_;
    const uint32_t depth_;
    BounceMemory bounce_memory_{BOUNCE_BYTES_MAX};
    std::atomic<int32_t> owned_{0};
    std::atomic<int32_t> pauses_[2] = {{0}, {0}}; //!< by QueueUse: calls of TryMake until it tries again
    mutable std::mutex mutex_;
    std::string shortage_;
};

} // namespace rawduck
