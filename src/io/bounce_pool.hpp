//! Aligned buffers through which data goes whose own address the device cannot take. One pool per queue,
//! filled as needed and reused; all pools of a target share a budget, so that hundreds of threads stay
//! bounded.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace rawduck {

//! Bytes which the pools of one target may still take. The first chunk of a pool comes on top: without it its
//! thread could make no progress. Thread-safe.
class BounceBudget {
  public:
    explicit BounceBudget(uint64_t bytes) : bytes_(bytes), left_(static_cast<int64_t>(bytes)) {}
    bool Take(uint64_t bytes);
    void Return(uint64_t bytes);
    void TakeOnTop(uint64_t bytes) { on_top_.fetch_add(bytes, std::memory_order_relaxed); }
    void ReturnOnTop(uint64_t bytes) { on_top_.fetch_sub(bytes, std::memory_order_relaxed); }
    //! Bytes that all pools hold.
    uint64_t Held() const;

  private:
    const uint64_t bytes_;
    std::atomic<int64_t> left_;
    std::atomic<uint64_t> on_top_{0};
};

//! Not thread-safe.
class BouncePool {
  public:
    BouncePool(uint64_t chunk_bytes, uint32_t memory_alignment, uint32_t max_chunks, BounceBudget &budget);
    ~BouncePool();
    BouncePool(const BouncePool &) = delete;
    BouncePool &operator=(const BouncePool &) = delete;

    //! nullptr when all chunks are in use and there may be no more of them; with none in use it means that
    //! the system is out of memory.
    char *Acquire();
    void Release(char *chunk);
    uint64_t ChunkBytes() const { return chunk_bytes_; }

  private:
    struct Free {
        void operator()(char *chunk) const { std::free(chunk); }
    };

    const uint64_t chunk_bytes_;
    const uint64_t alignment_;
    const uint32_t max_chunks_;
    BounceBudget &budget_;
    uint64_t charged_ = 0; //!< bytes taken from the budget
    std::vector<std::unique_ptr<char, Free>> chunks_;
    std::vector<char *> idle_;
};

} // namespace rawduck
