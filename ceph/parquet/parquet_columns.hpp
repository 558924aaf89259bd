//! The way through a Parquet footer to its column chunks.
#pragma once

#include "ceph/parquet/parquet_fields.hpp"
#include "ceph/parquet/thrift_reader.hpp"

#include <functional>

namespace rawduck_ceph {

//! For a list of row groups, a value of the field FILE_ROW_GROUPS of this type: calls `metadata()` before the
//! ColumnMetaData of each column chunk, which it must read as a struct. Throws InvalidParquet.
inline void ForEachColumnMetadata(ThriftReader &reader, uint8_t type, const std::function<void()> &metadata) {
    const auto column_chunk = [&] {
        reader.Struct([&](int16_t id, uint8_t field) {
            id == CHUNK_METADATA &&field == STRUCT ? metadata() : reader.Skip(field);
        });
    };
    reader.StructList(type, [&] {
        reader.Struct([&](int16_t id, uint8_t field) {
            id == GROUP_COLUMNS ? reader.StructList(field, column_chunk) : reader.Skip(field);
        });
    });
}

} // namespace rawduck_ceph
