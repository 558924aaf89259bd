//! Aggregates that merge partial results of objects where DuckDB's own functions would return another type.
//! They are bound by the optimizer and are not in the catalog.
#pragma once

#include "duckdb/function/aggregate_function.hpp"

namespace rawduck_ceph {

//! BIGINT -> BIGINT: the sum of counts; 0 for no rows.
duckdb::AggregateFunction MergeCounts();
//! (sum, count BIGINT) -> DOUBLE: the result of avg(). `sum_type`: HUGEINT, DECIMAL(38, s) or DOUBLE. Divides
//! as DuckDB does: exact sums in long double, but those of `narrow` integers (16 bits and less) in double.
duckdb::AggregateFunction MergeAverages(const duckdb::LogicalType &sum_type, bool narrow);

} // namespace rawduck_ceph
