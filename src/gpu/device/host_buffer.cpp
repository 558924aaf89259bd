#include "gpu/device/host_buffer.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

namespace rawduck::gpu {
Memory OrdinaryMemory(uint64_t bytes) {
    constexpr uint64_t ALIGNMENT = 64;
    const uint64_t size = std::max(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    auto *data = static_cast<uint8_t *>(std::aligned_alloc(ALIGNMENT, size));
    if (!data) {
        throw std::bad_alloc();
    }
    return {std::shared_ptr<uint8_t>(data, &std::free), bytes};
}

HostMemory::Chunk HostMemory::Noted(Chunk chunk) {
    const uint64_t bytes = chunk.memory.Size();
    const uint64_t now = now_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    uint64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
    return chunk;
}

HostMemory::Chunk HostMemory::TakeSmall() {
    return Noted({OrdinaryMemory(SMALL_BYTES), false});
}

HostMemory::Chunk HostMemory::Take() {
    if (!device_) {
        return Noted({OrdinaryMemory(LARGE_BYTES), false});
    }
    Memory pinned = device_->TryTakeChunk();
    return pinned.Data() ? Noted({std::move(pinned), true}) : Noted({OrdinaryMemory(CHUNK_BYTES), false});
}

void HostBuffer::MakeRoom() {
    const bool has_outgrown_small = chunks_.size() == 1 && size_ == HostMemory::SMALL_BYTES;
    if (chunks_.empty()) {
        chunks_.push_back(memory_->TakeSmall());
    } else if (has_outgrown_small) {
        HostMemory::Chunk larger = memory_->Take();
        std::memcpy(larger.memory.Data(), chunks_.front().memory.Data(), size_);
        chunks_.front() = std::move(larger);
        memory_->NoteLetGo(HostMemory::SMALL_BYTES);
    } else {
        chunks_.push_back(memory_->Take());
    }
    room_ = chunks_.back().memory.Size() - (has_outgrown_small ? size_ : 0);
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
