//! Objects that have no row of a query, told from the statistics that rawduck wrote beside them.
#pragma once

#include "duckdb/planner/logical_operator.hpp"

namespace rawduck_ceph {

//! Takes the objects that the filters exclude out of each read_parquet scan of rados:// objects, whether it is
//! read or pushed afterwards. Sends one small request per object of a scan with filters, and pins the versions
//! of the objects. EXPLAIN shows how many are left. Throws IOException when an object was replaced since the
//! query was bound.
void PruneObjects(duckdb::ClientContext &context, duckdb::LogicalOperator &plan);

} // namespace rawduck_ceph
