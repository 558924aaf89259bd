//! What the footer of a Parquet object tells about its size and its columns, to estimate what a query over it
//! costs. Needs no DuckDB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace rawduck_ceph {

struct ParquetColumn {
    uint64_t stored_bytes = 0;
    //! The most that a row group has; 0 where a writer did not say, as it does not when there are too many.
    uint64_t distinct_values = 0;
};

struct ParquetSummary {
    uint64_t rows = 0;
    std::map<std::string, ParquetColumn> columns; //!< those without fields of their own
};

//! `tail`: the last bytes of an object. Returns 0 and fills in the summary, or else how many last bytes it
//! takes: more than `length` when the footer is longer, SIZE_MAX when this is no sound Parquet footer.
size_t SummarizeParquet(const char *tail, size_t length, ParquetSummary &summary);

} // namespace rawduck_ceph
