//! Numbers of the fields of Parquet's Thrift structures, and values of its enumerations, as far as they are
//! used here.
#pragma once

#include <cstdint>

namespace rawduck_ceph {

// FileMetaData
constexpr int16_t FILE_SCHEMA = 2, FILE_ROWS = 3, FILE_ROW_GROUPS = 4;
// SchemaElement
constexpr int16_t ELEMENT_TYPE = 1, ELEMENT_REPETITION = 3, ELEMENT_NAME = 4, ELEMENT_CHILDREN = 5,
                  ELEMENT_CONVERTED = 6, ELEMENT_SCALE = 7, ELEMENT_PRECISION = 8, ELEMENT_LOGICAL = 10;
// LogicalType, TimestampType and TimeUnit
constexpr int16_t LOGICAL_TIMESTAMP = 8;
constexpr int16_t TIMESTAMP_TO_UTC = 1, TIMESTAMP_UNIT = 2;
constexpr int16_t UNIT_MICROSECONDS = 2;
// RowGroup, ColumnChunk and ColumnMetaData
constexpr int16_t GROUP_COLUMNS = 1;
constexpr int16_t CHUNK_METADATA = 3;
constexpr int16_t COLUMN_PATH = 3, COLUMN_STORED_BYTES = 7, COLUMN_STATISTICS = 12;
// Statistics
constexpr int16_t STATISTICS_DISTINCT = 4, STATISTICS_MAXIMUM = 5, STATISTICS_MINIMUM = 6;

// Values of Type
constexpr int64_t TYPE_INT32 = 1, TYPE_INT64 = 2, TYPE_BYTE_ARRAY = 6;
// Values of ConvertedType; -1 is none of them
constexpr int64_t NOT_CONVERTED = -1, CONVERTED_UTF8 = 0, CONVERTED_DECIMAL = 5, CONVERTED_DATE = 6,
                  CONVERTED_UINT_8 = 11, CONVERTED_UINT_16 = 12, CONVERTED_UINT_32 = 13, CONVERTED_INT_8 = 15,
                  CONVERTED_INT_16 = 16, CONVERTED_INT_32 = 17, CONVERTED_INT_64 = 18;
// Values of FieldRepetitionType
constexpr int64_t REPETITION_REPEATED = 2;

} // namespace rawduck_ceph
