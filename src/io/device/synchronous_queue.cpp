#include "io/device/synchronous_queue.hpp"

#include "common/invariant.hpp"

#include <algorithm>

namespace rawduck {

SynchronousQueue::SynchronousQueue(uint32_t depth, Transfer transfer)
    : depth_(depth), transfer_(std::move(transfer)) {
    completed_.reserve(depth);
}

SynchronousQueue::~SynchronousQueue() {
    RAWDUCK_INVARIANT(completed_.empty(), "a queue is destroyed when all of its commands were reaped");
}

bool SynchronousQueue::Submit(Command &command) {
    if (completed_.size() >= depth_) {
        return false;
    }
    command.result = transfer_(command);
    completed_.push_back(&command);
    return true;
}

uint32_t SynchronousQueue::Reap(Command **completed, uint32_t max, bool) {
    size_t count = std::min<size_t>(max, completed_.size());
    std::copy_n(completed_.begin(), count, completed);
    completed_.erase(completed_.begin(), completed_.begin() + static_cast<std::ptrdiff_t>(count));
    return static_cast<uint32_t>(count);
}

} // namespace rawduck
