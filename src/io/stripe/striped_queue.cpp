#include "io/stripe/striped_queue.hpp"

#include "common/invariant.hpp"

#include <algorithm>

namespace rawduck {

StripedQueue::StripedQueue(CommandRouter &router, std::vector<std::unique_ptr<Queue>> queues, uint32_t depth)
    : router_(router), depth_(depth) {
    lanes_.reserve(queues.size());
    for (std::unique_ptr<Queue> &queue : queues) {
        lanes_.push_back({std::move(queue), 0});
    }
}

// What the command says of its place is the member's from here on until it is reaped.
bool StripedQueue::Submit(Command &command) {
    if (in_flight_ >= depth_) {
        return false;
    }
    const Command original = command;
    const size_t member = router_.Translate(command);
    bool taken = false;
    try {
        taken = lanes_[member].queue->Submit(command);
    } catch (...) {
        command.device_offset = original.device_offset;
        command.placement = original.placement;
        throw;
    }
    if (!taken) {
        command.device_offset = original.device_offset;
        command.placement = original.placement;
        return false;
    }
    lanes_[member].in_flight++;
    in_flight_++;
    return true;
}

uint32_t StripedQueue::ReapFrom(size_t member, Command **completed, uint32_t max, bool wait) {
    Lane &lane = lanes_[member];
    const uint32_t count = lane.queue->Reap(completed, std::min(max, lane.in_flight), wait);
    for (uint32_t i = 0; i < count; i++) {
        router_.TranslateBack(*completed[i], member);
    }
    lane.in_flight -= count;
    in_flight_ -= count;
    return count;
}

// Where nothing is complete, the member with the most in flight is waited for: it is the slowest, or has the most to do.
// The others work meanwhile. Each is asked first, since some engines send what was submitted only then.
uint32_t StripedQueue::Reap(Command **completed, uint32_t max, bool wait) {
    uint32_t count = 0;
    size_t busiest = 0;
    for (size_t i = 0; i < lanes_.size() && count < max; i++) {
        const size_t member = (next_ + i) % lanes_.size();
        if (lanes_[member].in_flight > 0) {
            count += ReapFrom(member, completed + count, max - count, false);
        }
        busiest = lanes_[member].in_flight > lanes_[busiest].in_flight ? member : busiest;
    }
    next_ = (next_ + 1) % lanes_.size();
    if (count > 0 || !wait) {
        return count;
    }
    RAWDUCK_INVARIANT(lanes_[busiest].in_flight > 0, "something that is in flight is waited for");
    return ReapFrom(busiest, completed, max, true);
}

bool StripedQueue::Reaches(const void *memory, uint64_t bytes) const {
    return std::all_of(lanes_.begin(), lanes_.end(),
                       [&](const Lane &lane) { return lane.queue->Reaches(memory, bytes); });
}

} // namespace rawduck
