//! A fixed number of queues, each behind a lock, shared by all
//! threads: one is the strategy "single", several are "pool".
#pragma once

#include "io/queue/queue_strategy.hpp"

#include <vector>

namespace rawduck {

//! Thread-safe.
class SharedSlots {
  public:
    SharedSlots(QueueSupply &supply, size_t count) : supply_(supply), slots_(count) {}

    //! Takes the first free queue, beginning at one that differs from thread to thread; with all of them busy
    //! it waits for the one it began at. So no queue is preferred, and a thread alone always meets the same.
    //! A stopgap is taken only when nothing better is free.
    QueueLease Acquire();
    void Discard(QueueLease &lease);
    void Clear();

  private:
    //! On cache lines of its own, because all threads try the locks.
    struct alignas(64) Slot {
        std::mutex mutex;                    //!< held for a whole request, and so during I/O
        std::unique_ptr<RequestQueue> queue; //!< made by its first request
    };

    QueueLease Take(size_t index, std::unique_lock<std::mutex> lock);

    QueueSupply &supply_;
    std::vector<Slot> slots_;
};

class SharedQueues final : public QueueStrategy {
  public:
    SharedQueues(std::unique_ptr<Device> device, uint32_t depth, size_t count)
        : QueueStrategy(std::move(device), depth), slots_(supply_, count) {}

    QueueLease Acquire() override { return slots_.Acquire(); }
    void Discard(QueueLease &lease) override { slots_.Discard(lease); }
    void Close() override;

  private:
    SharedSlots slots_;
};

} // namespace rawduck
