//! Scans of Parquet objects in a plan: which of them can be pushed, and their objects.
#pragma once

#include "ceph/pushdown/scan/object_calls.hpp"

#include "duckdb/planner/operator/logical_filter.hpp"
#include "duckdb/planner/operator/logical_get.hpp"
#include "duckdb/planner/operator/logical_projection.hpp"

#include <vector>

namespace rawduck_ceph {

//! Projections and filters from an operator down to a scan. `get` is null when another
//! operator is in between.
struct ScanChain {
    explicit ScanChain(duckdb::unique_ptr<duckdb::LogicalOperator> &top);

    std::vector<duckdb::LogicalProjection *> projections;
    std::vector<duckdb::LogicalFilter *> filters;
    duckdb::LogicalGet *get = nullptr;
    duckdb::unique_ptr<duckdb::LogicalOperator> *get_place = nullptr; //!< its owner in the plan
};

//! The paths of a read_parquet scan of rados:// objects without options, except whether their paths have hive
//! partitions; empty for other scans. Throws NotPushable for one with options.
std::vector<std::string> RadosParquetPaths(const duckdb::LogicalGet &get);

//! Makes EXPLAIN show why the scan is not pushed.
void ExplainReading(duckdb::LogicalGet &get, const std::string &why);

//! Throws Error when the cluster cannot be reached.
std::vector<CallTarget> TargetsOf(duckdb::ClientContext &context, const std::vector<std::string> &paths);

} // namespace rawduck_ceph
