//! Makes the queues of one target, within limits for the target and for the process.
//!
//! A ring uses a descriptor, an xNVMe queue something as scarce. DuckDB has five or more threads per
//! processor: a queue for each thread and target would leave no descriptors for files. Threads that get no
//! queue of their own share some behind locks. Where not even those can be made, commands run one at a time
//! on the calling thread.
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
    //! After a refusal, this many requests pass before a queue is tried for again.
    static constexpr int32_t PAUSE_REQUESTS = 1024;

    QueueSupply(Device &device, uint32_t depth) : device_(device), depth_(depth) {}

    //! Null when there are as many as there may be, or none can be made.
    std::unique_ptr<RequestQueue> TryMake(QueueUse use);
    //! See Device::CreateSynchronousQueue.
    std::unique_ptr<RequestQueue> MakeSynchronous();

    //! Why a thread got no queue of its own since the device was opened, as a clause; empty if none was
    //! refused.
    std::string Shortage() const;
    //! Memory that the bounce pools of all queues hold.
    uint64_t BounceBytes() const { return bounce_memory_.Held(); }

  private:
    std::unique_ptr<RequestQueue> Refuse(QueueUse use, const std::string &why);

    //! What the bounce pools of all queues may take together, besides one chunk each.
    static constexpr uint64_t BOUNCE_BYTES_MAX = 12 * MIB;

    Device &device_;
    const uint32_t depth_;
    BounceMemory bounce_memory_{BOUNCE_BYTES_MAX, &device_};
    std::atomic<int32_t> owned_{0};
    std::atomic<int32_t> pauses_[2] = {{0}, {0}}; //!< by QueueUse: calls of TryMake until it tries again
    mutable std::mutex mutex_;                    //!< guards shortage_; no other lock is taken under it
    std::string shortage_;
};

} // namespace rawduck
