//! Filters that a join has derived from its build side: ranges and lists of keys.
#pragma once

#include "ceph/protocol/messages.hpp"
#include "ceph/pushdown/scan/object_calls.hpp"

#include "duckdb/planner/table_filter_set.hpp"

#include <vector>

namespace rawduck_ceph {

//! Adds those of `filters` that can be expressed in SQL to the request's filter. The others can be omitted,
//! because the join removes rows that do not match. `columns`: of the scan, in its order.
void AddJoinFilters(duckdb::ClientContext &context, const duckdb::TableFilterSet &filters,
                    const std::vector<RequestColumn> &columns, Request &request);

//! The targets that may have a row that passes `filters`, in their order: the others' statistics exclude it. Sends
//! one small request per target where the filters are such that statistics may decide, and pins the versions of the
//! objects. `types`: of `columns`. Throws Error.
std::vector<CallTarget> TargetsWithMatches(duckdb::ClientContext &context,
                                           const duckdb::TableFilterSet &filters,
                                           const std::vector<RequestColumn> &columns,
                                           const duckdb::vector<duckdb::LogicalType> &types,
                                           const std::vector<CallTarget> &targets, ObjectPins &pins);

} // namespace rawduck_ceph
