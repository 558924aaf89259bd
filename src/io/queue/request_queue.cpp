#include "io/queue/request_queue.hpp"

#include "common/invariant.hpp"

#include <algorithm>

namespace rawduck {
namespace {

//! Larger commands gain nothing when each byte is copied
//! anyway, and smaller ones let copying overlap transfers.
constexpr uint64_t MAX_BOUNCE_CHUNK_BYTES = 256 * KIB;
constexpr uint32_t MAX_BOUNCE_CHUNKS = 16;

uint64_t ChunkBytes(const Capabilities &caps) {
    return std::min<uint64_t>(caps.max_transfer_bytes, MAX_BOUNCE_CHUNK_BYTES);
}

} // namespace

RequestQueue::RequestQueue(std::unique_ptr<Queue> device_queue, const Capabilities &caps,
                           BounceMemory &bounce_memory, std::unique_ptr<QueueReservation> queue_reservation)
    : reservation(std::move(queue_reservation)), queue(std::move(device_queue)),
      bounce(ChunkBytes(caps), caps.memory_alignment, std::min(queue->Depth(), MAX_BOUNCE_CHUNKS),
             bounce_memory),
      slots(queue->Depth()) {
    idle.reserve(slots.size());
    resubmit.reserve(slots.size());
    reaped.reserve(slots.size());
    for (auto &slot : slots) {
        idle.push_back(&slot);
    }
}

RequestQueue::~RequestQueue() {
    RAWDUCK_INVARIANT(idle.size() == slots.size(), "nothing is in flight when a queue is destroyed");
}

} // namespace rawduck
