//! Host memory that columns are written into before they go to a device: chunks, from which it copies by itself where
//! there are such, else ordinary memory.
#pragma once

#include "gpu/device/device.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace rawduck::gpu {

//! Thread-safe.
class HostMemory {
  public:
    static constexpr uint64_t CHUNK_BYTES = Device::CHUNK_BYTES;

    struct Chunk {
        Memory memory;
        bool is_pinned;
    };

    //! `device`: whose pinned memory is taken, as long as there is some. Null: ordinary memory is.
    explicit HostMemory(std::shared_ptr<Device> device = nullptr) : device_(std::move(device)) {}

    //! CHUNK_BYTES, contents undefined. Throws std::bad_alloc.
    Chunk Take();
    //! Notes that so many chunks are let go.
    void NoteLetGo(uint64_t chunks) { now_.fetch_sub(chunks * CHUNK_BYTES, std::memory_order_relaxed); }
    //! The most bytes that ever were in use at once.
    uint64_t Peak() const { return peak_.load(std::memory_order_relaxed); }

  private:
    std::shared_ptr<Device> device_;
    std::atomic<uint64_t> now_{0}, peak_{0};
};

//! Bytes that grow at their end, and stay where they are.
class HostBuffer {
  public:
    explicit HostBuffer(std::shared_ptr<HostMemory> memory) : memory_(std::move(memory)) {}
    HostBuffer(HostBuffer &&) noexcept = default;
    HostBuffer &operator=(HostBuffer &&) = delete;
    ~HostBuffer() {
        if (memory_) {
            memory_->NoteLetGo(chunks_.size());
        }
    }

    //! Appends values of `width` bytes each (a power of two up to 16, always the same one), which write(to, first, count)
    //! writes: those from `first` on, `count` of them, which lie in one chunk. Throws std::bad_alloc.
    template <class WRITE> void Append(uint64_t values, uint64_t width, const WRITE &write) {
        for (uint64_t first = 0; first < values;) {
            const uint64_t used = size_ % HostMemory::CHUNK_BYTES;
            if (used == 0) {
                chunks_.push_back(memory_->Take());
            }
            const uint64_t count = std::min(values - first, (HostMemory::CHUNK_BYTES - used) / width);
            write(chunks_.back().memory.Data() + used, first, count);
            size_ += count * width;
            first += count;
        }
    }
    void AppendBytes(const void *bytes, uint64_t count);
    void AppendFill(uint8_t byte, uint64_t count);

    uint64_t Size() const { return size_; }
    bool IsPinned() const {
        return std::all_of(chunks_.begin(), chunks_.end(),
                           [](const HostMemory::Chunk &chunk) { return chunk.is_pinned; });
    }
    //! Calls visit(data, offset, bytes) for each chunk, in order; every offset is a multiple of CHUNK_BYTES.
    template <class VISIT> void ForEachChunk(const VISIT &visit) const {
        uint64_t offset = 0;
        for (const HostMemory::Chunk &chunk : chunks_) {
            const uint64_t bytes = std::min(HostMemory::CHUNK_BYTES, size_ - offset);
            visit(static_cast<const uint8_t *>(chunk.memory.Data()), offset, bytes);
            offset += bytes;
        }
    }

  private:
    std::shared_ptr<HostMemory> memory_; //!< null: moved from
    std::vector<HostMemory::Chunk> chunks_;
    uint64_t size_ = 0;
};

} // namespace rawduck::gpu
