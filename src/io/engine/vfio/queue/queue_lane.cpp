#include "io/engine/vfio/queue/queue_lane.hpp"

#include "common/clock.hpp"

#include <chrono>
#include <ctime>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

namespace rawduck {
namespace {

//! Without interrupts: at first the lane is looked at again at once, because a fast device answers within
//! microseconds, then with a pause.
constexpr uint32_t EAGER_LOOKS = 64;
constexpr long PAUSE_NS = 20000;
constexpr uint64_t SLICE_NS = QueueLane::SLICE_MS * 1000000ull;

//! Between two looks. Several threads may poll on few processors, so the rest is given to others.
void Pause(bool polls, uint32_t looks) {
    if (polls || looks < EAGER_LOOKS) {
        sched_yield();
        return;
    }
    const timespec pause = {0, PAUSE_NS};
    nanosleep(&pause, nullptr);
}

} // namespace

bool QueueLane::Deliver() {
    if (!dead_.empty()) {
        return false; // all commands were taken back, and the function is closed, whatever is left in the ring
    }
    bool any = false;
    QueuePair::Completion completion;
    for (;;) {
        const auto popped = pair_->Pop(completion);
        if (popped == QueuePair::PopResult::NOTHING) {
            break;
        }
        any = true;
        if (popped == QueuePair::PopResult::VIOLATION) {
            violated_ = true;
            continue;
        }
        completion.owner.sink->Complete(completion.owner.command, completion.status, completion.result,
                                        nullptr);
    }
    if (any) {
        deliveries_++;
        pair_->Acknowledge();
        if (followers_ > 0) {
            delivered_.notify_all();
        }
    }
    return any;
}

bool QueueLane::Wait(std::unique_lock<std::mutex> &lock) {
    if (led_) {
        followers_++;
        const auto woken = delivered_.wait_for(lock, std::chrono::milliseconds(SLICE_MS));
        followers_--;
        return woken == std::cv_status::no_timeout;
    }
    led_ = true;
    const bool came = WaitForController(lock);
    led_ = false;
    // One of them leads now, unless what came is theirs: the caller hands it out before it unlocks.
    delivered_.notify_all();
    return came;
}

bool QueueLane::WaitForController(std::unique_lock<std::mutex> &lock) {
    const uint64_t deliveries = deliveries_;
    const auto came = [&] { return pair_->HasCompletion() || deliveries != deliveries_; };
    if (interrupt_ >= 0 && !polls_) {
        pollfd waiting = {interrupt_, POLLIN, 0};
        lock.unlock();
        const bool told = poll(&waiting, 1, SLICE_MS) == 1;
        if (told) {
            eventfd_t count;
            eventfd_read(waiting.fd, &count);
        }
        lock.lock();
        return told || came(); // also of what somebody handed out before: then the caller waits again
    }
    const uint64_t start = MonotonicNs();
    bool over = false;
    for (uint32_t looks = 0; !came() && !over && !woken_; looks++) {
        lock.unlock();
        Pause(polls_, looks);
        over = MonotonicNs() - start > SLICE_NS;
        lock.lock();
    }
    woken_ = false;
    return came();
}

void QueueLane::SetInterrupt(int interrupt) {
    if (interrupt_ >= 0 && interrupt_ != interrupt) {
        eventfd_write(interrupt_, 1); // whoever sleeps on it would not be told any more
    }
    interrupt_ = interrupt;
}

void QueueLane::WakeAll() {
    woken_ = led_;
    delivered_.notify_all();
    if (interrupt_ >= 0) {
        eventfd_write(interrupt_, 1);
    }
}

} // namespace rawduck
