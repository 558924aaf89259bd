//! The optimizer that pushes parts of plans over read_parquet('rados://…') into the OSDs: filters and
//! projections of a scan, the aggregate above it, and the first rows of a LIMIT.
#pragma once

#include "duckdb/main/extension/extension_loader.hpp"

namespace rawduck_ceph {

void RegisterOffloadOptimizer(duckdb::ExtensionLoader &loader);

} // namespace rawduck_ceph
