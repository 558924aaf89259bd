//! Which bytes of an object a query needs, from the object's verified footer. Free of DuckDB.
#pragma once

#include "ceph/parquet/footer.hpp"

#include <string>
#include <vector>

namespace rawduck_ceph {

struct ObjectRange {
    uint64_t start = 0;
    uint64_t end = 0; //!< exclusive
};

//! Sorted ranges without overlap: the chunks and Bloom filters of these columns, and the end of the object
//! with the footer. Names are compared as DuckDB does, without regard to ASCII case. Includes what DuckDB's
//! reader may read besides: short gaps between chunks, and whole row groups of which most is needed.
std::vector<ObjectRange> NeededRanges(const ParquetLayout &layout, uint64_t object_bytes,
                                      const std::vector<std::string> &columns);

} // namespace rawduck_ceph
