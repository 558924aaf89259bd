//! The scan that replaces read_parquet where a query is pushed: asks the object class of every object, and
//! reads here, with the same query, what it did not answer for.
#pragma once

#include "ceph/protocol/messages.hpp"
#include "ceph/pushdown/scan/object_calls.hpp"
#include "ceph/pushdown/scan/scan_log.hpp"

#include "duckdb/function/table_function.hpp"

namespace rawduck_ceph {

//! Everything that the optimizer found out.
struct OffloadBindData final : duckdb::TableFunctionData {
    std::vector<CallTarget> targets;
    Request request;
    duckdb::vector<duckdb::LogicalType> types; //!< of the request's outputs
    //! Which output stands for each column of the scan; NO_OUTPUT for a column that is only filtered by.
    static constexpr size_t NO_OUTPUT = SIZE_MAX;
    std::vector<size_t> outputs;
    //! Names in the object and types of the scan's columns,
    //! for filters of joins; empty where there can be none.
    std::vector<RequestColumn> columns;
    CallLimits limits;
    std::shared_ptr<ScanRecord> record;
    std::string reply_key; //!< of PushdownFeedback::reply_bytes
};

//! Not in the catalog: the optimizer puts it into plans.
duckdb::TableFunction OffloadScan();

} // namespace rawduck_ceph
