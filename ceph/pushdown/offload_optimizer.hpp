//! Pushes pieces of plans over read_parquet('rados://…') into the OSDs: filters and projections of a scan,
//! the aggregation above it, and the first rows of an order or of no order.
#pragma once

#include "duckdb/main/extension/extension_loader.hpp"

namespace rawduck_ceph {

//! Registers the optimizer and its settings.
void RegisterOffload(duckdb::ExtensionLoader &loader);

} // namespace rawduck_ceph
