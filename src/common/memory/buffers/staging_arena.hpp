//! Memory for what DuckDB reads ahead into: runs of blocks, allocated for one command's time.
#pragma once

#include "common/memory/buffers/page_backing.hpp"
#include "common/memory/stable_memory.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace rawduck {

//! The first place that fits, so that the same pages are used again and again. Thread-safe.
class StagingArena {
  public:
    static constexpr uint64_t UNIT_BYTES = PageBacking::PART_BYTES;
    //! DuckDB reads ahead in runs of up to 32 MiB.
    static constexpr uint64_t LENGTH_MAX = 32 * MIB;
    static constexpr uint64_t ARENA_BYTES = 128 * MIB;
    //! Free memory that stays until nobody used it for a while: what two threads need, or what KeepUpTo allows. Others
    //! allocate here, too: hash tables.
    static constexpr uint64_t KEPT_MAX = 32 * MIB;

    struct Counts {
        uint64_t used_bytes = 0;
        uint64_t kept_bytes = 0; //!< free, and still in memory
    };

    //! The chunks at the beginning, which stay as long as anything does, are listed as StableMemory while they have
    //! pages, and so given back as a whole.
    static constexpr uint64_t LISTED_MAX = KEPT_MAX;

    //! Takes ARENA_BYTES from `memory`, which begins at a multiple of CHUNK_BYTES, is mapped and not touched.
    StagingArena(char *memory, PageBacking &backing) : memory_(memory), backing_(backing) {}

    //! `bytes`: a multiple of UNIT_BYTES up to LENGTH_MAX. Not zeroed. nullptr: there is no such place.
    char *Allocate(uint64_t bytes);
    //! Needs no memory for it: destructors free runs.
    void Free(char *memory) noexcept;
    //! Gives back what nobody used since the last call. Needs no memory for it.
    void GiveBackUnused() noexcept;
    //! Whether a later call of it does, although nobody frees anything before.
    bool HasMoreToGiveBack() const;
    //! Lets more of it stay, if it is more.
    void KeepUpTo(uint64_t bytes) noexcept { kept_allowed_ = bytes; }
    //! See BlockArena. What is listed stays.
    void DropKeptInChild() noexcept;
    Counts Count() const;

    //! For fork(), see PageBacking.
    std::mutex &Mutex() { return mutex_; }

  private:
    static constexpr uint64_t UNITS = ARENA_BYTES / UNIT_BYTES;
    static constexpr uint64_t UNITS_PER_CHUNK = PageBacking::PARTS_PER_CHUNK;
    static constexpr uint64_t CHUNKS = UNITS / UNITS_PER_CHUNK;

    //! Units of all chunks: bit i of a mask is unit i of the chunk.
    struct Units {
        std::array<uint8_t, CHUNKS> masks{};
        bool Has(uint64_t unit) const {
            return (masks[unit / UNITS_PER_CHUNK] >> unit % UNITS_PER_CHUNK & 1) != 0;
        }
        void Add(uint64_t chunk, uint8_t mask) { masks[chunk] = static_cast<uint8_t>(masks[chunk] | mask); }
        void Remove(uint64_t chunk, uint8_t mask) {
            masks[chunk] = static_cast<uint8_t>(masks[chunk] & ~mask);
        }
    };

    static bool IsListed(uint64_t chunk) { return chunk < LISTED_MAX / PageBacking::CHUNK_BYTES; }
    static uint8_t MaskOf(uint64_t chunk, uint64_t begin, uint64_t end);
    char *ChunkMemory(uint64_t chunk) const { return memory_ + chunk * PageBacking::CHUNK_BYTES; }
    //! UNITS: none.
    uint64_t FindFree(uint64_t count) const;
    //! Both of a chunk, under the lock.
    uint8_t Kept(uint64_t chunk) const {
        return static_cast<uint8_t>(backed_.masks[chunk] & ~used_.masks[chunk]);
    }
    uint8_t MayGo(uint64_t chunk) const {
        return IsListed(chunk) && used_.masks[chunk] != 0 ? 0 : Kept(chunk);
    }
    void Back(const Units &to_back);
    void GiveBack(const Units &going);

    char *const memory_;
    PageBacking &backing_;
    std::atomic<uint64_t> kept_allowed_{0}; //!< bytes

    mutable std::mutex mutex_;              //!< guards what follows; no other lock is taken while it is held
    Units used_;                            //!< and those that are being given back
    Units going_;                           //!< those
    Units backed_;                          //!< with pages
    Units touched_;                         //!< in use some time since the last GiveBackUnused
    std::array<uint16_t, UNITS> lengths_{}; //!< in units, of what begins there
};

} // namespace rawduck
