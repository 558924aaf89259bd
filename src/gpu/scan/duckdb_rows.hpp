//! What DuckDB itself scans: columns of a row group, and the rows that the transaction has added, as it sees them.
#pragma once

#include "gpu/pipeline/block_source.hpp"
#include "gpu/plan/table_plan.hpp"
#include "gpu/scan/host_column.hpp"

namespace rawduck::gpu {

//! Columns by their place in the plan. Both need the context's active transaction to be the plan's.
std::vector<HostColumn> ScanRowGroup(duckdb::ClientContext &context, const TablePlan &plan,
                                     const PlannedRowGroup &group, const std::vector<size_t> &columns);
std::vector<HostColumn> ScanLocalRows(duckdb::ClientContext &context, const TablePlan &plan,
                                      const std::vector<size_t> &columns);

//! The blocks of the plan's database, through DuckDB's own handle of the file: many ranges at once where that is one of
//! rawduck's, else as DuckDB reads them. (A second descriptor of an ordinary file would take DuckDB's lock with it when it
//! is closed.)
std::unique_ptr<BlockSource> BlocksOf(const TablePlan &plan);

} // namespace rawduck::gpu
