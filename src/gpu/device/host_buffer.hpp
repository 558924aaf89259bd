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

//! Memory of this process, aligned as a device's is. Contents undefined. Throws std::bad_alloc.
Memory OrdinaryMemory(uint64_t bytes);

//! Thread-safe.
class HostMemory {
  public:
    //! What a buffer begins with, in ordinary memory, because many results have few rows; what it goes on with; and that where
    //! there is no device.
    static constexpr uint64_t SMALL_BYTES = 4 << 10, CHUNK_BYTES = Device::CHUNK_BYTES,
                              LARGE_BYTES = 512 << 10;

    struct Chunk {
        Memory memory;
        bool is_pinned;
    };

    //! `device`: whose pinned memory is taken, as long as there is some. Null: ordinary memory is.
    explicit HostMemory(std::shared_ptr<Device> device = nullptr) : device_(std::move(device)) {}

    //! Contents undefined. Throws std::bad_alloc.
    Chunk TakeSmall();
    Chunk Take();
    void NoteLetGo(uint64_t bytes) { now_.fetch_sub(bytes, std::memory_order_relaxed); }
    //! The most bytes that ever were in use at once.
    uint64_t Peak() const { return peak_.load(std::memory_order_relaxed); }

  private:
    Chunk Noted(Chunk chunk);

    std::shared_ptr<Device> device_;
    std::atomic<uint64_t> now_{0}, peak_{0};
};

//! Bytes that grow at their end.
class HostBuffer {
  public:
    explicit HostBuffer(std::shared_ptr<HostMemory> memory) : memory_(std::move(memory)) {}
    HostBuffer(HostBuffer &&) noexcept = default;
    HostBuffer &operator=(HostBuffer &&) = delete;
    ~HostBuffer() {
        if (memory_) {
            memory_->NoteLetGo(HeldBytes());
        }
    }

    //! Appends values of `width` bytes each (a power of two up to 16, always the same one), which write(to, first, count)
    //! writes: those from `first` on, `count` of them, which lie in one chunk. Throws std::bad_alloc.
    template <class WRITE> void Append(uint64_t values, uint64_t width, const WRITE &write) {
        for (uint64_t first = 0; first < values;) {
            if (room_ == 0) {
                MakeRoom();
            }
            const uint64_t count = std::min(values - first, room_ / width);
            const Memory &last = chunks_.back().memory;
            write(last.Data() + last.Size() - room_, first, count);
            size_ += count * width;
            room_ -= count * width;
            first += count;
        }
    }
    void AppendBytes(const void *bytes, uint64_t count);
    void AppendFill(uint8_t byte, uint64_t count);

    uint64_t Size() const { return size_; }
    //! Of memory, with what is not used of it.
    uint64_t HeldBytes() const {
        uint64_t bytes = 0;
        for (const HostMemory::Chunk &chunk : chunks_) {
            bytes += chunk.memory.Size();
        }
        return bytes;
    }
    //! Whether all of it is; there is something.
    bool IsPinned() const {
        return !chunks_.empty() &&
               std::all_of(chunks_.begin(), chunks_.end(),
                           [](const HostMemory::Chunk &chunk) { return chunk.is_pinned; });
    }
    //! Calls visit(data, offset, bytes) for each chunk, in order; every offset is a multiple of SMALL_BYTES.
    template <class VISIT> void ForEachChunk(const VISIT &visit) const {
        uint64_t offset = 0;
        for (const HostMemory::Chunk &chunk : chunks_) {
            const uint64_t bytes = std::min(chunk.memory.Size(), size_ - offset);
            visit(static_cast<const uint8_t *>(chunk.memory.Data()), offset, bytes);
            offset += bytes;
        }
    }

  private:
    void MakeRoom();

    std::shared_ptr<HostMemory> memory_; //!< null: moved from
    std::vector<HostMemory::Chunk> chunks_;
    uint64_t size_ = 0;
    uint64_t room_ = 0; //!< in the last chunk
};

} // namespace rawduck::gpu
