//! A scan of Parquet objects as the plan has it: what of it may be pushed at all, and where its objects are.
#pragma once

#include "ceph/pushdown/scan/object_calls.hpp"

#include "duckdb/planner/operator/logical_filter.hpp"
#include "duckdb/planner/operator/logical_get.hpp"
#include "duckdb/planner/operator/logical_projection.hpp"

#include <vector>

namespace rawduck_ceph {

//! Projections and filters from the top down to a scan. `get` is null when something else is in between.
struct ScanChain {
    explicit ScanChain(duckdb::unique_ptr<duckdb::LogicalOperator> &top);

    std::vector<duckdb::LogicalProjection *> projections;
    std::vector<duckdb::LogicalFilter *> filters;
    duckdb::LogicalGet *get = nullptr;
    duckdb::unique_ptr<duckdb::LogicalOperator> *get_place = nullptr; //!< where the plan holds it
};

//! The objects of a scan by read_parquet of nothing but rados:// paths, with no options. Empty for any other
//! scan, which is no business of ours. Throws NotPushable for one with options.
std::vector<std::string> RadosParquetPaths(const duckdb::LogicalGet &get);

//! EXPLAIN will say why this scan is not pushed.
void ExplainReading(duckdb::LogicalGet &get, const std::string &why);

//! Throws Error when the cluster cannot be reached.
std::vector<CallTarget> TargetsOf(duckdb::ClientContext &context, const std::vector<std::string> &paths);

} // namespace rawduck_ceph
