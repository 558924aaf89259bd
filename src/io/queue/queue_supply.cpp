#include "io/queue/queue_supply.hpp"

#include "common/error.hpp"

#include <algorithm>
#include <new>

namespace rawduck {

std::unique_ptr<RequestQueue> QueueSupply::TryMake(QueueUse use) {
    std::atomic<int32_t> &pause = pauses_[static_cast<size_t>(use)];
    if (pause.load(std::memory_order_relaxed) > 0) {
        pause.fetch_sub(1, std::memory_order_relaxed);
        return nullptr;
    }
    std::unique_ptr<QueueReservation> reservation;
    if (device_.Caps().scarce_queues) {
        reservation = QueueReservation::TryTake(use == QueueUse::OWNED ? &owned_ : nullptr);
        if (!reservation) {
            return Refuse(use, "a target has at most " + std::to_string(QueueReservation::OWNED_MAX) +
                                   " queues that belong to a thread, and this process at most " +
                                   std::to_string(QueueReservation::ProcessMax()) +
                                   " queues in all (a quarter of ulimit -n, up to " +
                                   std::to_string(QueueReservation::PROCESS_MAX) + ")");
        }
    }
    const uint32_t depth = std::clamp(depth_, 1u, std::max(1u, device_.Caps().max_queue_depth));
    try {
        return std::make_unique<RequestQueue>(device_.CreateQueue(depth, use), device_.Caps(), bounce_memory_,
                                              std::move(reservation));
    } catch (const Error &error) {
        return Refuse(use, error.what());
    } catch (const std::bad_alloc &) {
        return Refuse(use, "there was no memory for a queue");
    }
}

std::unique_ptr<RequestQueue> QueueSupply::Refuse(QueueUse use, const std::string &why) {
    pauses_[static_cast<size_t>(use)].store(PAUSE_REQUESTS, std::memory_order_relaxed);
    std::lock_guard<std::mutex> guard(mutex_);
    shortage_ = why;
    return nullptr;
}

std::unique_ptr<RequestQueue> QueueSupply::MakeSynchronous() {
    auto queue = std::make_unique<RequestQueue>(device_.CreateSynchronousQueue(), device_.Caps(),
                                                bounce_memory_, nullptr);
    queue->stopgap = true;
    return queue;
}

std::string QueueSupply::Shortage() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return shortage_;
}

} // namespace rawduck
