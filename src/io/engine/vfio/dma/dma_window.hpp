//! Blocks of a long range of addresses that a device sees as a whole: what is contiguous here is so there, whichever
//! blocks are mapped.
#pragma once

#include "common/memory/buffers/block_arena.hpp"
#include "io/engine/vfio/dma/spare_memory.hpp"
#include "io/engine/vfio/pci_function.hpp"

namespace rawduck {

//! Not thread-safe.
class DmaWindow {
  public:
    //! BufferMemory gives pages back in multiples of these: so what is in use is never unmapped with what is not.
    static constexpr uint64_t BLOCK_BYTES = BlockArena::BLOCK_BYTES;

    //! What may be mapped.
    struct Limits {
        SpareMemory &spare;       //!< which it is taken from
        uint64_t spare_bytes_max; //!< of that
        uint64_t blocks_max;
    };

    //! Nothing is mapped at first. `begin` and `bytes` are multiples of BLOCK_BYTES.
    DmaWindow(PciFunction &function, char *begin, uint64_t bytes, uint64_t iova, const Limits &limits);
    ~DmaWindow() { Forget(); }
    DmaWindow(const DmaWindow &) = delete;
    DmaWindow &operator=(const DmaWindow &) = delete;

    bool Contains(const void *memory) const { return memory >= begin_ && memory < begin_ + bytes_; }
    //! Nothing when not all of it is mapped.
    std::optional<uint64_t> Find(const void *memory, uint64_t bytes) const;
    //! Maps what is missing. Nothing when that cannot be: the limits of the system, or of this window.
    std::optional<uint64_t> Reach(const void *memory, uint64_t bytes);
    //! Whether Reach is worth an attempt.
    bool MayReach(const void *memory) const { return Contains(memory) && !full_; }
    //! Unmaps every block that touches these bytes.
    void Unmap(char *begin, uint64_t bytes);
    //! Nothing is mapped any more: the function has lost all of it.
    void Forget();
    uint64_t MappedBytes() const { return mapped_blocks_ * BLOCK_BYTES; }

  private:
    struct Blocks {
        uint64_t first, end;
    };
    //! Those that touch the bytes, which lie within.
    Blocks BlocksOf(const void *memory, uint64_t bytes) const;
    uint64_t IovaOf(uint64_t block) const { return iova_ + block * BLOCK_BYTES; }
    bool Map(uint64_t block);

    PciFunction &function_;
    char *const begin_;
    const uint64_t bytes_, iova_;
    const Limits limits_;
    std::vector<bool> mapped_;
    uint64_t mapped_blocks_ = 0;
    bool full_ = false; //!< the last attempt failed, and nothing was unmapped since
};

} // namespace rawduck
