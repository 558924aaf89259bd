//! The counters of a SpillBuffer.
#pragma once

#include <cstdint>

namespace rawduck {

//! Counted in pieces: what lies in one block, or between two.
struct SpillCounters {
    uint64_t reads = 0;           //!< asked for
    uint64_t hits = 0;            //!< of those, found in memory
    uint64_t ahead = 0;           //!< blocks prefetched
    uint64_t unused = 0;          //!< of those, evicted without having been read
    uint64_t given_way_bytes = 0; //!< of memory, given back because others needed it
};

} // namespace rawduck
