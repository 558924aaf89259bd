#include "ceph/pushdown/plan/parquet_scan.hpp"

#include "ceph/files/rados_connections.hpp"
#include "ceph/pushdown/feedback/pushdown_feedback.hpp"
#include "ceph/pushdown/plan/pushed_query.hpp"
#include "ceph/rados/connection/rados_path.hpp"

#include "duckdb/common/multi_file/multi_file_states.hpp"
#include "duckdb/main/client_data.hpp"

#include <algorithm>

namespace rawduck_ceph {

namespace {

struct NotPushedReason final : duckdb::TableFunctionInfo {
    std::string why;
};

//! Of what may be said about hive partitions, only whether there are any.
bool HasOptions(const duckdb::LogicalGet &get, const duckdb::MultiFileOptions &options) {
    const bool named = std::any_of(get.named_parameters.begin(), get.named_parameters.end(),
                                   [](const auto &entry) { return entry.first != "hive_partitioning"; });
    return named || options.filename || options.union_by_name || options.file_row_number ||
           !options.schema.empty() || !options.bound_schema.empty();
}

//! Reading fails for a path that lacks a partition. An OSD would not notice.
void RequirePartitions(const std::string &path, const duckdb::MultiFileBindData &data) {
    for (const auto &partition : data.reader_bind.hive_partitioning_indexes) {
        if (path.find("/" + partition.value + "=") == std::string::npos) {
            throw NotPushable{"the path of " + path + " has no partition " + partition.value};
        }
    }
}

} // namespace

ScanChain::ScanChain(duckdb::unique_ptr<duckdb::LogicalOperator> &top) {
    for (auto *place = &top;; place = &(*place)->children[0]) {
        auto &op = **place;
        switch (op.type) {
        case duckdb::LogicalOperatorType::LOGICAL_PROJECTION:
            projections.push_back(&op.Cast<duckdb::LogicalProjection>());
            break;
        case duckdb::LogicalOperatorType::LOGICAL_FILTER:
            filters.push_back(&op.Cast<duckdb::LogicalFilter>());
            break;
        case duckdb::LogicalOperatorType::LOGICAL_GET:
            if (op.children.empty()) {
                get = &op.Cast<duckdb::LogicalGet>();
                get_place = place;
            }
            return;
        default:
            return;
        }
    }
}

std::vector<std::string> RadosParquetPaths(const duckdb::LogicalGet &get) {
    const auto &name = get.function.GetName();
    auto *data = dynamic_cast<const duckdb::MultiFileBindData *>(get.bind_data.get());
    if (!data || (name != "read_parquet" && name != "parquet_scan")) {
        return {};
    }
    if (!IsRadosPath(data->file_list->GetFirstFile().path)) {
        return {};
    }
    const bool whole = get.scan_partition_indices.empty() && !get.extra_info.sample_options &&
                       !get.has_pushed_projection && !get.ordinality_idx.IsValid();
    if (HasOptions(get, data->file_options) || !whole) {
        throw NotPushable{"the scan has options, samples or partitions"};
    }
    std::vector<std::string> paths;
    for (const auto &file : data->file_list->GetAllFiles()) {
        if (!IsRadosPath(file.path)) {
            throw NotPushable{"not all files are rados:// objects"};
        }
        RequirePartitions(file.path, *data);
        paths.push_back(file.path);
    }
    return paths;
}

void ExplainReading(duckdb::LogicalGet &get, const std::string &why) {
    auto reason = duckdb::make_shared_ptr<NotPushedReason>();
    reason->why = why;
    get.function.function_info = std::move(reason);
    get.function.to_string = [](duckdb::TableFunctionToStringInput &input) {
        auto &function = input.table_function;
        duckdb::InsertionOrderPreservingMap<std::string> text;
        text["Function"] = duckdb::StringUtil::Upper(function.GetName().GetIdentifierName());
        text["Not pushed"] = function.function_info->Cast<NotPushedReason>().why;
        return text;
    };
}

std::vector<CallTarget> TargetsOf(duckdb::ClientContext &context, const std::vector<std::string> &paths) {
    std::vector<CallTarget> targets;
    auto *opener = duckdb::ClientData::Get(context).file_opener.get();
    for (const std::string &path : paths) {
        auto pool = PoolOf(path, opener);
        auto feedback = PushdownFeedback::OfProcess().Of(pool);
        targets.push_back({std::move(pool), std::move(feedback), RadosPath::ParseObject(path).object, path});
    }
    return targets;
}

} // namespace rawduck_ceph
