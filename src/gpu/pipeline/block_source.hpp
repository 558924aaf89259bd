//! Where compressed blocks come from, and the count of what became of them.
#pragma once

#include "io/storage_file.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace rawduck::gpu {

//! Blocks that lie one behind the other in the file, and where they go.
struct BlockRange {
    uint64_t first;
    uint64_t count;
    uint8_t *to;
};

//! The blocks of a database file. Used by one thread at a time.
class BlockSource {
  public:
    virtual ~BlockSource() = default;
    BlockSource() = default;
    BlockSource(const BlockSource &) = delete;
    BlockSource &operator=(const BlockSource &) = delete;
    //! How they are read, in a word.
    virtual const char *Path() const = 0;
    //! Of each block, its header with the checksum included.
    virtual uint64_t BlockBytes() const = 0;
    //! As StorageFile::Pin; the `to` of the ranges is not used.
    virtual std::vector<StorageFile::MemoryPiece> Pin(const std::vector<BlockRange> &, MemoryPinner &,
                                                      std::unique_ptr<StorageFile::Hold> &) {
        return {};
    }
    //! Returns when all ranges are read.
    virtual void Read(const std::vector<BlockRange> &ranges) = 0;
};

struct DecodeCounters {
    uint64_t bytes_read = 0;    //!< from the file
    uint64_t bytes_copied = 0;  //!< to the device
    uint64_t bytes_decoded = 0; //!< values and characters on the device
};

} // namespace rawduck::gpu
