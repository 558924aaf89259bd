//! A look at a Parquet footer before DuckDB sees it. Parquet does not protect its footer with a checksum, and
//! a damaged one can ask for absurd amounts of memory or give an answer. So: the structure must parse with
//! every length inside the footer, all column chunks must lie in front of it, and the rows must add up. Where
//! the writer recorded a checksum, it must match, which finds everything else (names, types, statistics).
#pragma once

#include "ceph/parquet/object_source.hpp"

#include <string>

namespace rawduck_ceph {

//! Longer footers are refused.
constexpr uint32_t FOOTER_BYTES_MAX = 8 * 1024 * 1024;

//! Empty when the object has a sound footer, else what is wrong. Throws what reading throws.
std::string CheckFooter(ObjectSource &object);

//! The same for the metadata itself (Thrift's compact encoding
//! of FileMetaData), which ends at `data_end` in its object.
std::string CheckMetadata(const char *data, size_t length, uint64_t data_end);

} // namespace rawduck_ceph
