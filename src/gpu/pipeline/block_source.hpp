//! Where compressed blocks come from, and the count of what became of them.
#pragma once

#include <cstdint>

namespace rawduck::gpu {

//! The blocks of a database file. Used by one thread at a time.
class BlockSource {
  public:
    virtual ~BlockSource() = default;
    //! Of each block, its header with the checksum included.
    virtual uint64_t BlockBytes() const = 0;
    //! Reads `count` blocks that lie one behind the other.
    virtual void Read(uint64_t first_block, uint64_t count, uint8_t *to) = 0;
};

struct DecodeCounters {
    uint64_t bytes_read = 0;    //!< from the file
    uint64_t bytes_copied = 0;  //!< to the device
    uint64_t bytes_decoded = 0; //!< values and characters on the device
};

} // namespace rawduck::gpu
