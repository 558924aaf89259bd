//! From blocks on a device to the columns of row groups there.
#pragma once

#include "gpu/device/device.hpp"
#include "gpu/pipeline/blocks_on_device.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace rawduck::gpu {

struct SegmentJob {
    Codec codec;
    uint64_t block = 0;      //!< unused for CONSTANT
    uint64_t offset = 0;     //!< in the block, behind its header
    uint64_t byte_count = 0; //!< ends within the block
    uint64_t rows = 0;
    uint64_t most_characters = 0; //!< of its strings together
    std::array<uint8_t, 16> constant{};
};

struct ColumnJob {
    Kind kind;
    uint64_t width = 0;           //!< of a value; 0 for strings
    bool is_text = false;         //!< strings that have to be UTF-8
    std::vector<SegmentJob> data; //!< together all rows, in their order
    //! Which are not NULL, likewise; empty: the codec of the data has that inside.
    std::vector<SegmentJob> validity;
};

//! The rows of a column on a device.
struct ColumnRows {
    uint64_t rows = 0;
    uint64_t width = 0; //!< 0: strings
    Memory values;
    Memory valid;   //!< a byte a row, 1 or 0; empty: none is NULL
    Memory offsets; //!< strings: rows + 1 numbers of 64 bits
    Memory chars;
};

//! What is to be decoded of one row group.
struct RowGroupJob {
    uint64_t rows = 0;
    std::vector<ColumnJob> columns;
};

//! The blocks that row groups need.
std::set<uint64_t> WantedBlocks(const RowGroupJob &group);

//! Row groups that are being decoded, all columns of them together: what kernels are told does not depend on how many there
//! are. Used by one thread.
class RowsInTheMaking {
  public:
    virtual ~RowsInTheMaking() = default;
    RowsInTheMaking() = default;
    RowsInTheMaking(const RowsInTheMaking &) = delete;
    RowsInTheMaking &operator=(const RowsInTheMaking &) = delete;
    //! The columns of each row group, which are parts of larger memory. Once; waits for them. Throws Error: CORRUPT, naming
    //! the block, where a checksum does not fit or bytes make no sense.
    virtual std::deque<std::vector<ColumnRows>> Finish(DecodeCounters &counters) = 0;
};

//! Begins to decode them, and returns without waiting for it. The blocks may be those of `before`'s window: that has to be
//! finished first.
std::unique_ptr<RowsInTheMaking> BeginRows(std::vector<RowGroupJob> groups,
                                           std::shared_ptr<const BlocksOnDevice> blocks,
                                           std::shared_ptr<Device> device);

} // namespace rawduck::gpu
