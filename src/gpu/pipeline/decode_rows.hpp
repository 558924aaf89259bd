//! From blocks in a file to the columns of a row group on a device.
#pragma once

#include "gpu/device/device.hpp"
#include "gpu/pipeline/block_source.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace rawduck::gpu {

struct SegmentJob {
    Codec codec;
    uint64_t block = 0;      //!< unused for CONSTANT
    uint64_t offset = 0;     //!< in the block, behind its header
    uint64_t byte_count = 0; //!< ends within the block
    uint64_t rows = 0;
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

//! Reads the blocks, verifies their checksums and decodes all columns. Throws Error: CORRUPT, naming the block, where a
//! checksum does not fit or bytes make no sense; and whatever `blocks` throws.
std::vector<ColumnRows> DecodeRows(const std::vector<ColumnJob> &columns, uint64_t rows, BlockSource &blocks,
                                   Device &device, DecodeCounters &counters);

} // namespace rawduck::gpu
