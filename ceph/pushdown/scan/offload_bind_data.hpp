//! What the scan of a pushed query is bound to.
#pragma once

#include "ceph/protocol/messages.hpp"
#include "ceph/pushdown/scan/object_calls.hpp"
#include "ceph/pushdown/scan/plain_query.hpp"
#include "ceph/pushdown/scan/scan_log.hpp"

#include "duckdb/function/table_function.hpp"

namespace rawduck_ceph {

//! The result of planning.
struct OffloadBindData final : duckdb::TableFunctionData {
    std::vector<CallTarget> targets;
    //! Before statistics of the objects, or partitions, have excluded some.
    size_t listed_objects = 0;
    Request request;
    duckdb::vector<duckdb::LogicalType> types; //!< of the request's outputs
    //! The output for each column of the scan; NO_OUTPUT for a column that only filters use.
    static constexpr size_t NO_OUTPUT = SIZE_MAX;
    std::vector<size_t> outputs;
    //! The scan's columns in the object, for join filters; empty where there can be none.
    std::vector<RequestColumn> columns;
    duckdb::vector<duckdb::LogicalType> column_types; //!< of `columns`
    CallLimits limits;
    bool expects_kept = false; //!< it was pushed because its answers are probably kept
    //! Nothing above the scan depends on the order of its rows, so objects are taken as they come.
    bool any_order = false;
    //! For objects without an answer.
    std::shared_ptr<const PlainQuery> plain;
    //! Of the query that was planned: the plan depends on these versions.
    std::shared_ptr<ObjectPins> pins;
    std::shared_ptr<ScanRecord> record;
    std::string reply_key; //!< of PushdownFeedback::reply_bytes
};

} // namespace rawduck_ceph
