#include "ceph/pushdown/pruning/object_pruning.hpp"

#include "ceph/files/query_pins.hpp"
#include "ceph/files/rados_connections.hpp"
#include "ceph/pushdown/proof/object_columns.hpp"
#include "ceph/pushdown/pruning/object_filters.hpp"
#include "ceph/rados/connection/rados_error.hpp"
#include "ceph/rados/connection/rados_path.hpp"
#include "extension/file_systems/errors.hpp"

#include "duckdb/common/multi_file/multi_file_reader.hpp"
#include "duckdb/common/multi_file/multi_file_states.hpp"
#include "duckdb/main/client_data.hpp"
#include "duckdb/planner/operator/logical_get.hpp"

namespace rawduck_ceph {

namespace {

//! Null for a scan whose objects cannot be told apart by their statistics: not of several rados:// objects, or
//! with columns that number the objects.
duckdb::MultiFileBindData *PrunableScan(const duckdb::LogicalGet &get) {
    auto *data = dynamic_cast<duckdb::MultiFileBindData *>(get.bind_data.get());
    const auto &name = get.function.GetName();
    if (!data || (name != "read_parquet" && name != "parquet_scan") || !get.table_filters.HasFilters() ||
        !IsRadosPath(data->file_list->GetFirstFile().path)) {
        return nullptr;
    }
    const bool by_name = data->reader_bind.mapping == duckdb::MultiFileColumnMappingMode::BY_NAME &&
                         data->file_options.schema.empty() && data->file_options.bound_schema.empty();
    if (!by_name || !get.scan_partition_indices.empty()) {
        return nullptr;
    }
    for (const auto &column : get.GetColumnIds()) {
        if (column.IsVirtualColumn() && !column.IsEmptyColumn()) {
            return nullptr;
        }
    }
    return data;
}

std::vector<ColumnFilter> FiltersOf(const duckdb::LogicalGet &get) {
    std::vector<ColumnFilter> filters;
    for (auto &entry : get.table_filters) {
        const auto &column = get.GetColumnIndex(entry.GetIndex());
        if (column.IsVirtualColumn() || column.HasChildren() || column.HasType()) {
            continue;
        }
        const auto name = NameInObjects(get, column.GetPrimaryIndex());
        auto &filter = duckdb::ExpressionFilter::GetExpressionFilter(entry.Filter(), "pruning");
        const auto &type = get.returned_types[column.GetPrimaryIndex()];
        if (!name.empty() && IsDecidable(type, filter)) {
            filters.push_back({name.GetIdentifierName(), type, filter});
        }
    }
    return filters;
}

std::vector<PoolObject> ObjectsOf(duckdb::ClientContext &context,
                                  const duckdb::vector<duckdb::OpenFileInfo> &files) {
    auto *opener = duckdb::ClientData::Get(context).file_opener.get();
    std::vector<PoolObject> objects;
    for (const auto &file : files) {
        objects.push_back({PoolOf(file.path, opener), RadosPath::ParseObject(file.path).object});
    }
    return objects;
}

void Prune(duckdb::ClientContext &context, duckdb::LogicalGet &get) {
    auto *data = PrunableScan(get);
    if (!data) {
        return;
    }
    const auto filters = FiltersOf(get);
    if (filters.empty()) {
        return;
    }
    const auto files = data->file_list->GetAllFiles();
    const bool all_objects =
        std::all_of(files.begin(), files.end(), [](const auto &file) { return IsRadosPath(file.path); });
    if (!all_objects || files.size() < 2 || files.size() > EXAMINED_OBJECTS_MAX) {
        return;
    }
    const auto excluded = ExcludedObjects(context, ObjectsOf(context, files), filters, *PinsOf(context));
    duckdb::vector<duckdb::OpenFileInfo> kept;
    for (size_t i = 0; i < files.size(); i++) {
        if (!excluded[i]) {
            kept.push_back(files[i]);
        }
    }
    if (kept.size() == files.size()) {
        return;
    }
    if (kept.empty()) {
        kept.push_back(files.front()); // a scan has a file
    }
    auto &info = get.extra_info;
    info.file_filters += std::string(info.file_filters.empty() ? "" : ", ") + "statistics of the objects";
    info.total_files = info.total_files.IsValid() ? info.total_files.GetIndex() : files.size();
    info.filtered_files = kept.size();
    data->file_list = duckdb::make_shared_ptr<duckdb::SimpleMultiFileList>(std::move(kept));
    duckdb::MultiFileReader::PruneReaders(*data, *data->file_list);
}

} // namespace

void PruneObjects(duckdb::ClientContext &context, duckdb::LogicalOperator &plan) {
    if (plan.type == duckdb::LogicalOperatorType::LOGICAL_GET) {
        rawduck::Translated([&] { Prune(context, plan.Cast<duckdb::LogicalGet>()); });
    }
    for (auto &child : plan.children) {
        PruneObjects(context, *child);
    }
}

} // namespace rawduck_ceph
