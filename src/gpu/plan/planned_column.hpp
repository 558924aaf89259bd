//! A column of a table, and what a plan says of it in one row group.
#pragma once

#include "gpu/decode/decode.hpp"

#include "duckdb/common/enums/compression_type.hpp"
#include "duckdb/common/types.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace duckdb {
class BlockHandle;
}

namespace rawduck::gpu {

struct TableColumn {
    std::string name;
    duckdb::LogicalType type;
    uint64_t storage_index = 0;
    std::optional<Kind> kind; //!< unset: nested, or not stored as values of one width
};

//! A segment of a column, or of its validity.
struct PlannedSegment {
    duckdb::CompressionType compression = duckdb::CompressionType::COMPRESSION_AUTO;
    std::optional<Codec> codec; //!< unset: not one of ours
    bool is_validity = false;
    bool covers_nulls = false; //!< validity without bytes of its own: nulls are inside the data's codec
    bool is_persistent = false;
    int64_t block = -1;      //!< -1: no block, the value is in `constant`
    uint64_t offset = 0;     //!< in the block, behind its header
    uint64_t byte_count = 0; //!< from `offset`; to the end of the block where the file does not say
    uint64_t row_start = 0;  //!< within the row group
    uint64_t rows = 0;
    uint64_t most_characters = 0;       //!< of its strings together, by its statistics
    std::array<uint8_t, 16> constant{}; //!< little endian; of validity: 1 or 0
    duckdb::shared_ptr<duckdb::BlockHandle> lease;
};

struct PlannedColumn {
    std::vector<PlannedSegment> segments; //!< of the data, then of the validity, each in the order of rows
    std::string reason;                   //!< why DuckDB scans it; empty: our kernels decode it
    bool has_updates = false;             //!< of any transaction

    bool IsDecoded() const { return reason.empty(); }
};

} // namespace rawduck::gpu
