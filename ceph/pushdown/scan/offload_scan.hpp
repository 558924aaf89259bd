//! The scan that replaces read_parquet where a query is pushed. It calls the object class for each object,
//! and reads the objects for which the class returns no result.
#pragma once

#include "ceph/pushdown/scan/offload_bind_data.hpp"

#include "duckdb/function/table_function.hpp"

namespace rawduck_ceph {

//! Not in the catalog: only the optimizer adds it to plans. `any_order` as in its OffloadBindData.
duckdb::TableFunction OffloadScan(bool any_order);

} // namespace rawduck_ceph
