//! Memory for DuckDB's blocks of 256 KiB: kept together in chunks, so that whole huge pages can be given back.
#pragma once

#include "common/memory/buffers/page_backing.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace rawduck {

//! Chunks of eight blocks. Free blocks stay in memory until there are too many, or until nobody took them for a
//! while; chunks without a block in use go first. Thread-safe.
class BlockArena {
  public:
    static constexpr uint64_t BLOCK_BYTES = PageBacking::PART_BYTES;
    static constexpr uint64_t BLOCKS_PER_CHUNK = PageBacking::PARTS_PER_CHUNK;
    static_assert(BLOCK_BYTES == 256 * KIB, "DuckDB's blocks have this size");
    //! Free blocks that stay in memory: an eighth of those in use, within these bounds, or what KeepUpTo allows.
    static constexpr uint64_t KEPT_SHARE = 8, KEPT_MIN = 16 * MIB, KEPT_MAX = 128 * MIB;

    struct Counts {
        uint64_t used_bytes = 0;
        uint64_t kept_bytes = 0; //!< free, and still in memory
    };

    //! Takes `bytes` from `memory`, which is mapped and not touched; both multiples of CHUNK_BYTES.
    BlockArena(char *memory, uint64_t bytes, PageBacking &backing);

    //! A block, not zeroed. nullptr: all are in use.
    char *Allocate();
    //! Needs no memory for it: destructors free blocks.
    void Free(char *block) noexcept;
    //! Gives back what was free all the time since the last call. Needs no memory for it.
    void GiveBackUnused() noexcept;
    //! Lets more of them stay, if it is more: a query that begins takes again what the one before has freed.
    void KeepUpTo(uint64_t bytes) noexcept { kept_allowed_ = bytes / BLOCK_BYTES; }
    //! In a child that fork() has just made, with the lock held: nothing else gives back what is kept there.
    void DropKeptInChild() noexcept;
    Counts Count() const;

    //! For fork(), see PageBacking.
    std::mutex &Mutex() { return mutex_; }

  private:
    using ChunkId = uint32_t;
    static constexpr ChunkId NONE = UINT32_MAX;
    static constexpr uint8_t ALL = PageBacking::ALL_PARTS;

    //! Bit i of a mask is block i of the chunk.
    struct Chunk {
        uint8_t free = 0;
        uint8_t released = 0; //!< of the free ones, those without pages
        uint8_t going = 0;    //!< being given back, and counted as in use until they are
        ChunkId previous = NONE, next = NONE;
        uint8_t Kept() const { return free & static_cast<uint8_t>(~released); }
    };
    //! Chunks, the most recently used first.
    struct List {
        ChunkId first = NONE, last = NONE;
    };
    //! Memory that is being given back: it is in no list meanwhile. Of so many chunks at a time, so that it lies on
    //! the stack.
    struct Taken {
        struct Part {
            ChunkId chunk;
            uint8_t blocks;
        };
        std::array<Part, 64> parts;
        size_t count = 0;
    };

    char *ChunkMemory(ChunkId chunk) const { return memory_ + chunk * PageBacking::CHUNK_BYTES; }
    uint64_t KeptMax() const;
    List &ListOf(const Chunk &chunk) {
        return chunk.released == ALL ? unbacked_
               : chunk.free == ALL   ? empty_
               : chunk.Kept() != 0   ? partial_
                                     : bare_;
    }
    ChunkId TakeChunk();
    char *BackChunk(ChunkId id);
    void Remove(ChunkId id);
    void PushFront(ChunkId id);
    uint64_t TakeKept(uint64_t blocks, Taken &taken);
    void Release(const Taken &taken);

    char *const memory_;
    const ChunkId chunk_count_;
    PageBacking &backing_;
    std::atomic<uint64_t> kept_allowed_{0}; //!< blocks

    mutable std::mutex mutex_;  //!< guards what follows; no other lock is taken while it is held
    std::vector<Chunk> chunks_; //!< those that were ever used
    List partial_;              //!< with blocks in use and free ones, some of them in memory
    List empty_;                //!< with free blocks alone, some of them in memory
    List bare_;                 //!< with blocks in use and free ones, none of them in memory
    List unbacked_;             //!< without pages: were given back
    uint64_t used_ = 0;         //!< blocks
    uint64_t kept_ = 0;         //!< blocks
    uint64_t kept_least_ = 0;   //!< since the last GiveBackUnused
};

} // namespace rawduck
