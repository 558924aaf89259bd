//! A fixed number of queues, each behind a lock, shared by all threads: one is the strategy "single", several
//! are "pool".
#pragma once

#include "io/queue_strategy.hpp"

#include <atomic>

namespace rawduck {

class SharedQueues final : public QueueStrategy {
  public:
    SharedQueues(std::unique_ptr<Device> device, uint32_t depth, size_t count);

    //! Takes the first free queue, beginning at one that differs from thread to thread; with all of them busy
    //! it waits for the one it began at. So no queue is preferred, and a thread alone always meets the same.
    QueueLease Acquire() override;
    void Discard(QueueLease &lease) override;
    void Close() override;
    Device &GetDevice() override { return *device_; }

  private:
    //! On cache lines of its own, because all threads try the locks.
    struct alignas(64) Slot {
        std::mutex mutex;
        std::unique_ptr<RequestQueue> queue; //!< made by its first request
    };

    QueueLease Take(size_t index, std::unique_lock<std::mutex> lock);

    const uint32_t depth_;
    std::unique_ptr<Device> device_;
    std::vector<Slot> slots_;
};

} // namespace rawduck
