//! What a SpillBuffer counts.
#pragma once

#include <cstdint>

namespace rawduck {

//! Counted in pieces: what lies in one block, or between two.
struct SpillCounters {
    uint64_t reads = 0;  //!< asked for
    uint64_t hits = 0;   //!< of those, found in memory
    uint64_t ahead = 0;  //!< blocks read ahead
    uint64_t unused = 0; //!< of those, how many gave way without having been asked for
};

} // namespace rawduck
