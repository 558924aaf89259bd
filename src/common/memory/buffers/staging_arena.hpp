//! Memory for what DuckDB reads ahead into: runs of blocks, allocated for one command's time.
#pragma once

#include "common/memory/buffers/page_backing.hpp"
#include "common/memory/stable_memory.hpp"

#include <array>
#include <bitset>
#include <cstdint>
#include <mutex>

namespace rawduck {

//! The first place that fits, so that the same pages are used again and again. Thread-safe.
class StagingArena {
  public:
    static constexpr uint64_t UNIT_BYTES = 256 * KIB;
    //! DuckDB reads ahead in runs of up to 32 MiB.
    static constexpr uint64_t LENGTH_MAX = 32 * MIB;
    static constexpr uint64_t ARENA_BYTES = 128 * MIB;
    //! Free memory that stays until nobody used it for a while: what two threads need. Others allocate here, too.
    static constexpr uint64_t KEPT_MAX = 32 * MIB;

    struct Counts {
        uint64_t used_bytes = 0;
        uint64_t kept_bytes = 0; //!< free, and still in memory: in chunks
    };

    //! The chunks at the beginning, which stay as long as anything does, are listed as StableMemory while they have
    //! pages.
    static constexpr uint64_t LISTED_MAX = KEPT_MAX;

    //! Takes ARENA_BYTES from `memory`, which begins at a multiple of CHUNK_BYTES, is mapped and not touched.
    StagingArena(char *memory, PageBacking &backing) : memory_(memory), backing_(backing) {}

    //! `bytes`: a multiple of UNIT_BYTES up to LENGTH_MAX. Not zeroed. nullptr: there is no such place.
    char *Allocate(uint64_t bytes);
    void Free(char *memory);
    //! Gives back the chunks that nobody used since the last call.
    void GiveBackUnused();
    Counts Count() const;

    //! For fork(), see PageBacking.
    std::mutex &Mutex() { return mutex_; }

  private:
    static constexpr uint64_t UNITS = ARENA_BYTES / UNIT_BYTES;
    static constexpr uint64_t UNITS_PER_CHUNK = PageBacking::CHUNK_BYTES / UNIT_BYTES;
    static constexpr uint64_t CHUNKS = UNITS / UNITS_PER_CHUNK;

    static bool IsListed(uint64_t chunk) { return chunk < LISTED_MAX / PageBacking::CHUNK_BYTES; }
    //! UNITS: none.
    uint64_t FindFree(uint64_t count) const;
    bool IsFree(uint64_t chunk) const;
    void GiveBack(uint64_t chunk);

    char *const memory_;
    PageBacking &backing_;

    mutable std::mutex
        mutex_; //!< guards what follows; only the lock of StableMemory is taken while it is held
    std::bitset<UNITS> used_;
    std::bitset<CHUNKS> backed_;
    std::bitset<CHUNKS> touched_;           //!< in use some time since the last GiveBackUnused
    std::array<uint16_t, UNITS> lengths_{}; //!< in units, of what begins there
};

} // namespace rawduck
