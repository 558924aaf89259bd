//! The aggregates that put the answers of objects together where DuckDB's own would give another type. They
//! are bound by the optimizer and not in the catalog.
#pragma once

#include "duckdb/function/aggregate_function.hpp"

namespace rawduck_ceph {

//! BIGINT -> BIGINT: the sum of counts, 0 for none.
duckdb::AggregateFunction MergeCounts();
//! (sum, count BIGINT) -> DOUBLE: what avg() would have returned; `sum_type`
//! is HUGEINT, DECIMAL(38, s) or DOUBLE. Divides as DuckDB does: exact sums
//! in long double, but `narrow` ones (of 16 bit numbers and less) in double.
duckdb::AggregateFunction MergeAverages(const duckdb::LogicalType &sum_type, bool narrow);

} // namespace rawduck_ceph
