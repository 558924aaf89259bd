//! Number of rows and sizes of columns of a Parquet object, from its footer, to estimate the cost of a query.
//! Free of DuckDB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace rawduck_ceph {

struct ParquetColumn {
    uint64_t stored_bytes = 0;
    //! Maximum over the row groups; 0 where the writer did not record it, for example because
    //! there are too many.
    uint64_t distinct_values = 0;
};

struct ParquetSummary {
    uint64_t rows = 0;
    std::map<std::string, ParquetColumn> columns; //!< flat columns only
};

//! `tail`: the last bytes of an object. Returns 0 when the summary is complete; otherwise the number of last
//! bytes that are needed: more than `length` when the footer is longer, SIZE_MAX when it is invalid.
size_t SummarizeParquet(const char *tail, size_t length, ParquetSummary &summary);

} // namespace rawduck_ceph
