#include "io/queue/shared_queues.hpp"

#include <atomic>

namespace rawduck {
namespace {

//! Numbers the threads, so that those which start one after the other begin at different queues.
size_t ThreadNumber() {
    static std::atomic<size_t> next{0};
    thread_local const size_t number = next.fetch_add(1, std::memory_order_relaxed);
    return number;
}

} // namespace

QueueLease SharedSlots::Acquire() {
    QueueLease stopgap;
    const size_t first = ThreadNumber() % slots_.size();
    for (size_t tried = 0; tried < slots_.size(); tried++) {
        const size_t index = (first + tried) % slots_.size();
        std::unique_lock<std::mutex> lock(slots_[index].mutex, std::try_to_lock);
        if (lock.owns_lock()) {
            QueueLease lease = Take(index, std::move(lock));
            if (!lease.queue->stopgap) {
                return lease;
            }
            if (!stopgap.queue) {
                stopgap = std::move(lease);
            }
        }
    }
    if (stopgap.queue) {
        return stopgap;
    }
    return Take(first, std::unique_lock<std::mutex>(slots_[first].mutex));
}

QueueLease SharedSlots::Take(size_t index, std::unique_lock<std::mutex> lock) {
    Slot &slot = slots_[index];
    if (!slot.queue || slot.queue->stopgap) {
        if (std::unique_ptr<RequestQueue> better = supply_.TryMake(QueueUse::SHARED)) {
            slot.queue = std::move(better);
        } else if (!slot.queue) {
            slot.queue = supply_.MakeSynchronous();
        }
    }
    return {slot.queue.get(), index, std::move(lock)};
}

void SharedSlots::Discard(QueueLease &lease) {
    slots_[lease.index].queue.reset(); // the lease still holds the lock
    lease.queue = nullptr;
}

void SharedSlots::Clear() {
    for (Slot &slot : slots_) {
        std::lock_guard<std::mutex> guard(slot.mutex);
        slot.queue.reset();
    }
}

void SharedQueues::Close() {
    slots_.Clear();
    device_.reset();
}

} // namespace rawduck
