//! The memory that DuckDB reads into: page-aligned, so that devices write to it directly, and used again.
#pragma once

#include "common/memory/buffers/block_arena.hpp"
#include "common/memory/buffers/page_backing.hpp"
#include "common/memory/buffers/staging_arena.hpp"
#include "common/memory/huge_memory.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

namespace rawduck {

//! Blocks of 256 KiB, and runs of them up to 32 MiB. Thread-safe.
class BufferMemory {
  public:
    static constexpr uint64_t ADDRESS_MIN = 2 * StagingArena::ARENA_BYTES;
    //! Free blocks may take this share of what is available with them, and no more than that; free staging memory, too.
    static constexpr uint64_t KEPT_SHARE = 16, KEPT_MAX = 1 * GIB;

    //! Bytes that this process may take from the system; 0: not known. Called by one thread at a time.
    using Available = uint64_t (*)();

    struct Counts {
        BlockArena::Counts blocks;
        StagingArena::Counts staging;
        PageBacking::Counts pages;
        uint64_t address_bytes = 0; //!< reserved
    };

    //! The one of this process, which is never destroyed. A thread gives back what was free for a second; it ends
    //! when all is given back. nullptr: the system does not give the address space, or no handlers of forks.
    static BufferMemory *OfProcess();

    //! Addresses for as many bytes as the machine has memory. nullptr: the system refuses, or they would be missing
    //! elsewhere, as where the program's addresses are limited.
    static std::unique_ptr<BufferMemory> Reserve();

    //! Reserves address space, at least ADDRESS_MIN. Throws std::bad_alloc.
    explicit BufferMemory(uint64_t address_bytes);

    //! Lets free blocks stay until nobody took them for a second, as far as memory is available. It is asked for by the
    //! thread that gives back, so every second while there are free blocks.
    void KeepWhatIsAvailable(Available available) { available_ = available; }
    //! Not zeroed. nullptr: memory of this size is not served, or all is in use.
    char *Allocate(uint64_t bytes);
    bool Owns(const void *memory) const {
        return memory >= region_.Data() && memory < region_.Data() + address_bytes_;
    }
    //! Of what it owns.
    char *Begin() const { return region_.Data(); }
    uint64_t AddressBytes() const { return address_bytes_; }
    void Free(char *memory) noexcept;
    //! Gives back what was free all the time since the last call.
    void GiveBackUnused() noexcept;
    Counts Count() const;

  private:
    bool IsStaging(const char *memory) const { return memory < region_.Data() + StagingArena::ARENA_BYTES; }
    bool HasMoreToGiveBack() const;
    void StartGivingBack() noexcept;
    void KeepGivingBack() noexcept;
    void KeepUpTo(uint64_t bytes) noexcept;
    uint64_t AllowedBytes() const noexcept;
    static void LockForFork();
    static void UnlockInParent();
    static void UnlockInChild();

    const uint64_t address_bytes_;
    HugeMemory region_;
    PageBacking backing_;
    StagingArena staging_;
    BlockArena blocks_;
    std::atomic<Available> available_{nullptr};
    //! Nobody has to start a thread: it runs, or this is not the process's memory, or a child of the process.
    std::atomic<bool> gives_back_{true};
};

} // namespace rawduck
