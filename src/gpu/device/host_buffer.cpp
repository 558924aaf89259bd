#include "gpu/device/host_buffer.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

namespace rawduck::gpu {
namespace {

constexpr uint64_t CHUNK_ALIGNMENT = 64;

Memory OrdinaryChunk() {
    auto *data = static_cast<uint8_t *>(std::aligned_alloc(CHUNK_ALIGNMENT, HostMemory::CHUNK_BYTES));
    if (!data) {
        throw std::bad_alloc();
    }
    return {std::shared_ptr<uint8_t>(data, &std::free), HostMemory::CHUNK_BYTES};
}

} // namespace

HostMemory::Chunk HostMemory::Take() {
    Chunk chunk = {device_ ? device_->TryTakeChunk() : Memory(), true};
    if (!chunk.memory.Data()) {
        chunk = {OrdinaryChunk(), false};
    }
    const uint64_t now = now_.fetch_add(CHUNK_BYTES, std::memory_order_relaxed) + CHUNK_BYTES;
    uint64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
    return chunk;
}

void HostBuffer::AppendBytes(const void *bytes, uint64_t count) {
    Append(count, 1, [&](uint8_t *to, uint64_t first, uint64_t part) {
        std::memcpy(to, static_cast<const uint8_t *>(bytes) + first, part);
    });
}

void HostBuffer::AppendFill(uint8_t byte, uint64_t count) {
    Append(count, 1, [&](uint8_t *to, uint64_t, uint64_t part) { std::memset(to, byte, part); });
}

} // namespace rawduck::gpu
