//! Verification of a Parquet footer before DuckDB reads it. Parquet has no checksum of the footer: a corrupt
//! one may request huge amounts of memory or give a wrong result. The footer must parse with all lengths
//! inside of it, all column chunks must lie before it, and row counts must add up. Other corruption (names,
//! types, statistics) is detected only where the writer recorded a checksum.
#pragma once

#include "ceph/parquet/object_source.hpp"

#include <string>
#include <vector>

namespace rawduck_ceph {

//! Longer footers are rejected.
constexpr uint32_t FOOTER_BYTES_MAX = 8 * 1024 * 1024;

//! Where the bytes of a column lie in one row group.
struct ColumnChunk {
    size_t row_group = 0;
    std::string column; //!< of the root; several chunks have the same one when it is nested
    uint64_t start = 0;
    uint64_t bytes = 0;
    uint64_t filter_start = 0; //!< a Bloom filter; 0: none
    uint64_t filter_bytes = 0; //!< 0: not recorded
};

struct ParquetLayout {
    std::vector<ColumnChunk> chunks;
    uint64_t footer_start = 0;
};

//! Returns an empty text for a valid footer, else what is wrong. Throws what ObjectSource::Read throws.
//! `layout`: set for a valid footer, unless null.
std::string CheckFooter(ObjectSource &object, ParquetLayout *layout = nullptr);

//! The same for the metadata without the tail (FileMetaData in Thrift's compact encoding). `data_end`: where
//! the column chunks end in the object.
std::string CheckMetadata(const char *data, size_t length, uint64_t data_end,
                          ParquetLayout *layout = nullptr);

} // namespace rawduck_ceph
