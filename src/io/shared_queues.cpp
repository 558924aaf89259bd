#include "io/shared_queues.hpp"

namespace rawduck {
namespace {

//! Numbers the threads, so that those which start one after the other begin at different queues.
size_t ThreadNumber() {
    static std::atomic<size_t> next{0};
    thread_local const size_t number = next.fetch_add(1, std::memory_order_relaxed);
    return number;
}

} // namespace

SharedQueues::SharedQueues(std::unique_ptr<Device> device, uint32_t depth, size_t count)
    : depth_(depth), device_(std::move(device)), slots_(count) {}

QueueLease SharedQueues::Acquire() {
    const size_t first = ThreadNumber() % slots_.size();
    for (size_t tried = 0; tried < slots_.size(); tried++) {
        const size_t index = (first + tried) % slots_.size();
        std::unique_lock<std::mutex> lock(slots_[index].mutex, std::try_to_lock);
        if (lock.owns_lock()) {
            return Take(index, std::move(lock));
        }
    }
    return Take(first, std::unique_lock<std::mutex>(slots_[first].mutex));
}

QueueLease SharedQueues::Take(size_t index, std::unique_lock<std::mutex> lock) {
    Slot &slot = slots_[index];
    if (!slot.queue) {
        slot.queue = std::make_unique<RequestQueue>(*device_, depth_, QueueUse::SHARED, bounce_memory_);
    }
    return {slot.queue.get(), index, std::move(lock)};
}

void SharedQueues::Discard(QueueLease &lease) {
    slots_[lease.index].queue.reset(); // the lease still holds the lock
    lease.queue = nullptr;
}

void SharedQueues::Close() {
    for (Slot &slot : slots_) {
        std::lock_guard<std::mutex> guard(slot.mutex);
        slot.queue.reset();
    }
    device_.reset();
}

} // namespace rawduck
