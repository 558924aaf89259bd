//! The segments of one column in one row group, and whether our kernels decode them.
#pragma once

#include "gpu/plan/planned_column.hpp"

namespace duckdb {
class ColumnData;
}

namespace rawduck::gpu {

//! How values of a type are stored; unset for nested types, and for those that have no fixed layout.
std::optional<Kind> KindOf(const duckdb::LogicalType &type);

//! `rows`: of the row group, as the plan counted them.
PlannedColumn PlanColumn(duckdb::ColumnData &column, const TableColumn &as, uint64_t rows);

} // namespace rawduck::gpu
