//! From an aggregate of the plan to the partial aggregates that each OSD computes over its objects, and to
//! the aggregate that merges them.
#pragma once

#include "ceph/pushdown/plan/pushed_query.hpp"

namespace rawduck_ceph {

//! Adds the partial aggregates to the query's outputs. Returns the merging aggregate over these outputs,
//! which are bound as columns of `table`; its type is that of `aggregate`. Throws NotPushable.
duckdb::unique_ptr<duckdb::Expression> AddPartialAggregate(duckdb::ClientContext &context, PushedQuery &query,
                                                           const duckdb::BoundAggregateExpression &aggregate,
                                                           duckdb::TableIndex table);

//! A reference to an output of the query, bound as a column of `table`.
duckdb::unique_ptr<duckdb::Expression> OutputReference(const PushedQuery &query, size_t output,
                                                       duckdb::TableIndex table);

} // namespace rawduck_ceph
