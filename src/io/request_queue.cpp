#include "io/request_queue.hpp"

#include <algorithm>

namespace rawduck {
namespace {

//! Larger commands gain nothing when each byte is copied anyway, and smaller ones let copying overlap
//! transfers.
constexpr uint64_t MAX_BOUNCE_CHUNK_BYTES = 256 * KIB;
constexpr uint32_t MAX_BOUNCE_CHUNKS = 16;

uint64_t ChunkBytes(const Capabilities &caps) {
    return std::min<uint64_t>(caps.max_transfer_bytes, MAX_BOUNCE_CHUNK_BYTES);
}

} // namespace

RequestQueue::RequestQueue(Device &device, uint32_t wanted_depth, QueueUse use, BounceMemory &bounce_memory)
    : queue(device.CreateQueue(std::max(1u, std::min(wanted_depth, device.Caps().max_queue_depth)), use)),
      bounce(ChunkBytes(device.Caps()), device.Caps().memory_alignment,
             std::min(queue->Depth(), MAX_BOUNCE_CHUNKS), bounce_memory),
      slots(queue->Depth()) {
    idle.reserve(slots.size());
    resubmit.reserve(slots.size());
    reaped.reserve(slots.size());
    for (auto &slot : slots) {
        idle.push_back(&slot);
    }
}

} // namespace rawduck
