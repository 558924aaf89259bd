//! Minimum and maximum of the columns of a Parquet object. rawduck writes them to an extended attribute of the
//! object, so that a query can tell without reading the object that it has none of the rows. Free of DuckDB.
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <string>

namespace rawduck_ceph {

constexpr const char *STATISTICS_ATTRIBUTE = "rawduck.statistics";

//! No value of the column is outside of these bounds; there may be NULLs.
struct ColumnBounds {
    //! DuckDB's name of the stored type: VARCHAR, or a type whose values are integers of at most 64 bits
    //! (TINYINT to BIGINT, UTINYINT to UINTEGER, DATE, TIMESTAMP, DECIMAL up to 18 digits).
    std::string type;
    //! As stored by Parquet; of all types but VARCHAR.
    int64_t minimum = 0, maximum = 0;
    //! Of VARCHAR.
    std::string minimum_text, maximum_text;
};

//! By name, of the flat columns whose bounds are known.
using ObjectStatistics = std::map<std::string, ColumnBounds>;

//! The statistics of an object with this content, from its Parquet footer. Empty when it is no Parquet file.
ObjectStatistics StatisticsOf(const char *object, uint64_t size);

//! The attribute's value. `size` and `modified` of the object invalidate it when another program replaces the
//! object and keeps its attributes.
std::string EncodeStatistics(const ObjectStatistics &statistics, uint64_t size, const timespec &modified);

//! Empty when the value is malformed, or not for an object of this size and time of modification.
ObjectStatistics DecodeStatistics(const std::string &value, uint64_t size, const timespec &modified);

} // namespace rawduck_ceph
