//! Aligned buffers for data whose own address the device cannot transfer to or from. One pool per queue,
//! filled as needed and reused; all pools of a target share a limit, so that hundreds of threads use bounded
//! memory.
#pragma once

#include "common/memory/bounce_chunks.hpp"
#include "io/device/device.hpp"

#include <cstdint>
#include <mutex>
#include <vector>

namespace rawduck {

//! The chunks of all pools of one target, all of one size. Thread-safe.
class BounceMemory {
  public:
    //! `bytes`: the limit for all pools together. The first chunk of each pool is not counted: without it,
    //! its thread could make no progress. `device`: is told of the memory; null: of no device that wants to be.
    explicit BounceMemory(uint64_t bytes, Device *device = nullptr) : bytes_(bytes), device_(device) {}

    //! A chunk of that many bytes, a multiple of 4096 and the same in every call, at a multiple of it if that
    //! is a power of two. Null when there may be no more, or the system is out of memory.
    char *Take(uint64_t chunk_bytes, bool beyond_limit);
    void Give(char *chunk, uint64_t chunk_bytes, bool beyond_limit);
    //! Chunks that are taken, and, where the memory is this target's own, those that are not.
    uint64_t Held() const;

  private:
    static constexpr uint64_t SLAB_BYTES = BounceChunks::SLAB_BYTES;

    bool IsShared(uint64_t chunk_bytes) const;
    bool AddSlab(uint64_t chunk_bytes);

    const uint64_t bytes_;
    Device *const device_;
    mutable std::mutex
        mutex_; //!< guards what follows; an engine may take its own under it (Device::Register), and
                //!< those of StableMemory and of BounceChunks are taken
    uint64_t charged_ = 0, beyond_limit_ = 0; //!< bytes that are taken
    BounceChunks shared_;
    //! Of a device that has to be told of its memory, or whose commands are longer than a slab. They go back to the system
    //! when the last chunk is given back.
    std::vector<StableHugeMemory> slabs_;
    std::vector<char *> idle_;
};

//! Not thread-safe.
class BouncePool {
  public:
    BouncePool(uint64_t chunk_bytes, uint32_t memory_alignment, uint32_t max_chunks, BounceMemory &memory);
    ~BouncePool();
    BouncePool(const BouncePool &) = delete;
    BouncePool &operator=(const BouncePool &) = delete;

    //! nullptr when all chunks are in use and there may be no more of them; with none in use it means that
    //! the system is out of memory.
    char *Acquire();
    void Release(char *chunk);
    uint64_t ChunkBytes() const { return chunk_bytes_; }

  private:
    const uint64_t chunk_bytes_;
    const uint64_t taken_bytes_; //!< for each chunk
    const uint32_t max_chunks_;
    BounceMemory &memory_;
    std::vector<char *> chunks_; //!< the first is the one on top
    std::vector<char *> idle_;
};

} // namespace rawduck
