//! What a join has learned about a column when the other side of it was read: ranges and lists of its keys.
#pragma once

#include "ceph/protocol/messages.hpp"

#include "duckdb/planner/table_filter_set.hpp"

#include <vector>

namespace rawduck_ceph {

//! Adds to the request's filter what of `filters` has a form in SQL. The rest is left out: the join itself
//! drops every row that does not match. `columns` are the scan's, in its order.
void AddJoinFilters(duckdb::ClientContext &context, const duckdb::TableFilterSet &filters,
                    const std::vector<RequestColumn> &columns, Request &request);

} // namespace rawduck_ceph
