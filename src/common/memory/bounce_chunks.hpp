//! Chunks of bounce memory that targets share: who reads many files takes little more than who reads one, and what one
//! has given back the next one gets, which the kernel need not zero again.
#pragma once

#include "common/memory/stable_memory.hpp"

#include <cstdint>

namespace rawduck {

//! A target's share in those of this process. Thread-safe.
class BounceChunks {
  public:
    static constexpr uint64_t SLAB_BYTES = HugeMemory::HUGE_PAGE_BYTES;
    //! Of slabs without a chunk in use, as long as there is a target. With the last one all go back to the system.
    static constexpr uint64_t KEPT_BYTES_MAX = 4 * SLAB_BYTES;

    //! Throws std::bad_alloc.
    BounceChunks();
    ~BounceChunks();
    BounceChunks(const BounceChunks &) = delete;
    BounceChunks &operator=(const BounceChunks &) = delete;

    //! At most SLAB_BYTES, at a multiple of it if that is a power of two. Its contents are anything. Null: the system is
    //! out of memory, or this was made before a fork().
    char *Take(uint64_t chunk_bytes) noexcept;
    void Give(char *chunk) noexcept;
    //! All memory of the process for this, in use or not.
    static uint64_t HeldBytes();

  private:
    const uint64_t generation_; //!< a forked child leaves to the parent what the parent has
};

} // namespace rawduck
