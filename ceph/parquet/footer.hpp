//! Verification of a Parquet footer before DuckDB reads it. Parquet has no checksum of the footer: a corrupt
//! one may request huge amounts of memory or give a wrong result. The footer must parse with all lengths
//! inside of it, all column chunks must lie before it, and row counts must add up. Other corruption (names,
//! types, statistics) is detected only where the writer recorded a checksum.
#pragma once

#include "ceph/parquet/object_source.hpp"

#include <string>

namespace rawduck_ceph {

//! Longer footers are rejected.
constexpr uint32_t FOOTER_BYTES_MAX = 8 * 1024 * 1024;

//! Returns an empty text for a valid footer, else what is wrong. Throws what ObjectSource::Read throws.
std::string CheckFooter(ObjectSource &object);

//! The same for the metadata without the tail (FileMetaData in Thrift's compact encoding). `data_end`: where
//! the column chunks end in the object.
std::string CheckMetadata(const char *data, size_t length, uint64_t data_end);

} // namespace rawduck_ceph
