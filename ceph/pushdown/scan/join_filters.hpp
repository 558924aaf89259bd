//! Filters that a join has derived from its build side: ranges and lists of keys.
#pragma once

#include "ceph/protocol/messages.hpp"

#include "duckdb/planner/table_filter_set.hpp"

#include <vector>

namespace rawduck_ceph {

//! Adds those of `filters` that can be expressed in SQL to the request's filter. The others can be omitted,
//! because the join removes rows that do not match. `columns`: of the scan, in its order.
void AddJoinFilters(duckdb::ClientContext &context, const duckdb::TableFilterSet &filters,
                    const std::vector<RequestColumn> &columns, Request &request);

} // namespace rawduck_ceph
