//! Aligned buffers for data whose own address the device cannot transfer to or from. One pool per queue,
//! filled as needed and reused; all pools of a target share a limit, so that hundreds of threads use bounded
//! memory.
#pragma once

#include "common/memory/bounce_chunks.hpp"
#include "io/device/device.hpp"

#include <atomic>
#include <condition_variable>
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
    //! is a power of two. Null when there may be no more, others wait for one, or the system is out of memory.
    char *Take(uint64_t chunk_bytes, bool beyond_limit);
    //! The same, beyond the limit, for a pool that has none: waits for what others give back. Null when nobody has any.
    char *Await(uint64_t chunk_bytes);
    //! The system lets a process have little of it (locked memory): pools have chunks only while a request runs, because
    //! those that sleep would keep them from others for ever.
    bool IsScarce() const { return device_ && device_->Caps().registered_memory; }
    //! Somebody waits for a chunk.
    bool IsAwaited() const { return awaiting_.load(std::memory_order_relaxed) > 0; }
    //! Of a pool, which uses it from the first to the second.
    void Join();
    void Leave();
    void Give(char *chunk, uint64_t chunk_bytes, bool beyond_limit);
    //! Chunks that are taken, and, where the memory is this target's own, those that are not.
    uint64_t Held() const;

  private:
    static constexpr uint64_t SLAB_BYTES = BounceChunks::SLAB_BYTES;

    char *TakeLocked(uint64_t chunk_bytes, bool beyond_limit);
    void DropUnused();
    bool IsShared(uint64_t chunk_bytes) const;
    bool AddSlab(uint64_t chunk_bytes);

    const uint64_t bytes_;
    Device *const device_;
    mutable std::mutex
        mutex_; //!< guards what follows; an engine may take its own under it (Device::Register), and
                //!< those of StableMemory and of BounceChunks are taken
    std::condition_variable given_back_;
    std::atomic<uint32_t> awaiting_{0};       //!< threads
    uint64_t tickets_ = 0, served_ = 0;       //!< of those
    uint64_t charged_ = 0, beyond_limit_ = 0; //!< bytes that are taken
    uint32_t pools_ = 0;
    BounceChunks shared_;
    //! Of a device that has to be told of its memory, or whose commands are longer than a slab. They go back to the system
    //! when the last chunk is given back; where memory is scarce, with the last pool.
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
    //! The same when a request has none and could not go on without: waits for other pools.
    char *AcquireOrWait();
    void Release(char *chunk);
    //! The request has ended: others may need what it has used.
    void Rest();
    uint64_t ChunkBytes() const { return chunk_bytes_; }

  private:
    char *Add(char *chunk);
    void GiveBackIdle();

    const uint64_t chunk_bytes_;
    const uint64_t taken_bytes_; //!< for each chunk
    const uint32_t max_chunks_;
    BounceMemory &memory_;
    std::vector<char *> chunks_; //!< one of them is beyond the limit
    std::vector<char *> idle_;
};

} // namespace rawduck
