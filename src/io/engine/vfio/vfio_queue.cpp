#include "io/engine/vfio/vfio_queue.hpp"

#include "common/clock.hpp"
#include "common/invariant.hpp"
#include "io/device/nvme_device.hpp"

#include <algorithm>

namespace rawduck {

VfioQueue::VfioQueue(Controller &controller, uint32_t namespace_id, uint32_t lba_size, uint32_t depth,
                     bool polls)
    : controller_(controller), namespace_id_(namespace_id), lba_size_(lba_size), depth_(std::max(1u, depth)),
      lane_(controller.AcquireLane(polls)) {
    waiting_.reserve(depth_);
    done_.reserve(depth_);
}

VfioQueue::~VfioQueue() {
    RAWDUCK_INVARIANT(taken_ == 0, "a queue is destroyed when all of its commands were reaped");
    controller_.ReleaseLane(lane_);
}

bool VfioQueue::Reaches(const void *memory, uint64_t bytes) const {
    return controller_.Memory().Reach(memory, bytes).has_value();
}

// What the lane has no room for waits here, so that a queue takes commands also while others fill the lane. The lane
// is not touched: its lock is taken once for all that are sent together.
bool VfioQueue::Submit(Command &command) {
    if (taken_ >= depth_) {
        return false;
    }
    taken_++;
    waiting_.push_back(&command);
    return true;
}

//! With one look at the clock, and one lock of the memory, for all of them.
void VfioQueue::Send() {
    if (waiting_.empty() || (!lane_.Pair().HasRoom() && lane_.Dead().empty())) {
        return;
    }
    const uint64_t now_ns = MonotonicNs();
    const DmaSpace::Lookup memory(controller_.Memory());
    size_t sent = 0;
    for (; sent < waiting_.size() && (lane_.Pair().HasRoom() || !lane_.Dead().empty()); sent++) {
        Command &command = *waiting_[sent];
        const auto iova = memory.Find(command.data, command.length);
        if (!iova || !lane_.Dead().empty()) {
            RAWDUCK_INVARIANT(iova || !lane_.Dead().empty(), "data lies in memory that the device reaches");
            Complete(&command, STATUS_HOST_PATH_ERROR_FINAL, 0, lane_.Dead().c_str());
            continue;
        }
        controller_.Submit(lane_, MakeNvmeTransfer(command, namespace_id_, lba_size_), *iova,
                           {static_cast<CommandSink *>(this), &command}, now_ns);
    }
    if (sent > 0 && lane_.Dead().empty()) {
        lane_.Pair().Ring();
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(sent));
}

void VfioQueue::Complete(void *completed, uint16_t status, uint64_t, const char *cause) noexcept {
    auto &command = *static_cast<Command *>(completed);
    SetNvmeResult(command, status);
    command.cause = cause;
    done_.push_back(&command);
}

uint32_t VfioQueue::Reap(Command **completed, uint32_t max, bool wait) {
    std::unique_lock<std::mutex> lock(lane_.Mutex());
    for (;;) {
        Send();
        if (lane_.Deliver()) {
            Send(); // otherwise those whose commands made room would take it each time, and these never
        }
        const size_t count = std::min<size_t>(max, done_.size());
        if (count > 0 || !wait) {
            std::copy_n(done_.begin(), count, completed);
            done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
            taken_ -= static_cast<uint32_t>(count);
            return static_cast<uint32_t>(count);
        }
        controller_.Wait(lane_, lock);
    }
}

} // namespace rawduck
