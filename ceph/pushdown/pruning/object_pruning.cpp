#include "ceph/pushdown/pruning/object_pruning.hpp"

#include "ceph/files/query_pins.hpp"
#include "ceph/files/rados_connections.hpp"
#include "ceph/parquet/object_statistics.hpp"
#include "ceph/rados/connection/rados_error.hpp"
#include "ceph/rados/connection/rados_path.hpp"
#include "extension/file_systems/errors.hpp"

#include "duckdb/common/multi_file/multi_file_reader.hpp"
#include "duckdb/common/multi_file/multi_file_states.hpp"
#include "duckdb/main/client_data.hpp"
#include "duckdb/planner/expression/bound_comparison_expression.hpp"
#include "duckdb/planner/expression_iterator.hpp"
#include "duckdb/planner/filter/expression_filter.hpp"
#include "duckdb/planner/operator/logical_get.hpp"
#include "duckdb/storage/statistics/base_statistics.hpp"
#include "duckdb/storage/statistics/numeric_stats.hpp"
#include "duckdb/storage/statistics/string_stats.hpp"

#include <unordered_map>

namespace rawduck_ceph {

namespace {

using duckdb::LogicalType;

//! Beyond it, examining the objects takes a good part of a second.
constexpr size_t EXAMINED_OBJECTS_MAX = 20000;

//! A filter of the scan on one column.
struct ColumnFilter {
    std::string column;
    LogicalType type;
    const duckdb::ExpressionFilter &filter;
};

//! Whether the values of the type are the integers, or the texts, that ColumnBounds has.
bool HasBounds(const LogicalType &type) {
    switch (type.id()) {
    case duckdb::LogicalTypeId::TINYINT:
    case duckdb::LogicalTypeId::SMALLINT:
    case duckdb::LogicalTypeId::INTEGER:
    case duckdb::LogicalTypeId::BIGINT:
    case duckdb::LogicalTypeId::UTINYINT:
    case duckdb::LogicalTypeId::USMALLINT:
    case duckdb::LogicalTypeId::UINTEGER:
    case duckdb::LogicalTypeId::DATE:
    case duckdb::LogicalTypeId::TIMESTAMP:
        return !type.HasAlias();
    case duckdb::LogicalTypeId::DECIMAL:
        return !type.HasAlias() && type.InternalType() != duckdb::PhysicalType::INT128;
    default:
        return type == LogicalType::VARCHAR && !type.HasAlias(); // and without a collation
    }
}

duckdb::BaseStatistics ToDuckDB(const ColumnBounds &bounds, const LogicalType &type) {
    auto statistics = duckdb::BaseStatistics::CreateUnknown(type);
    if (type.id() == duckdb::LogicalTypeId::VARCHAR) {
        const auto exact = duckdb::StringStatsType::EXACT_STATS;
        duckdb::StringStats::SetMin(statistics, duckdb::string_t(bounds.minimum_text), exact);
        duckdb::StringStats::SetMax(statistics, duckdb::string_t(bounds.maximum_text), exact);
        return statistics;
    }
    duckdb::NumericStats::SetMin(statistics, duckdb::Value::Numeric(type, bounds.minimum));
    duckdb::NumericStats::SetMax(statistics, duckdb::Value::Numeric(type, bounds.maximum));
    return statistics;
}

bool IsColumn(const duckdb::Expression &expression) {
    return expression.GetExpressionClass() == duckdb::ExpressionClass::BOUND_REF;
}

//! Whether bounds of the column may decide about the filter: it compares the column itself with constants.
bool ComparesColumn(const duckdb::Expression &filter) {
    if (auto optional = duckdb::ExpressionFilter::GetOptionalFilterChild(filter)) {
        return ComparesColumn(*optional);
    }
    bool column = false, constant = false, inside = false;
    duckdb::ExpressionIterator::EnumerateChildren(filter, [&](const duckdb::Expression &child) {
        column = column || IsColumn(child);
        constant = constant || child.GetExpressionClass() == duckdb::ExpressionClass::BOUND_CONSTANT;
        inside = inside || ComparesColumn(child);
    });
    const auto type = filter.GetExpressionType();
    const bool compares = duckdb::BoundComparisonExpression::IsComparison(type) ||
                          type == duckdb::ExpressionType::COMPARE_BETWEEN ||
                          type == duckdb::ExpressionType::COMPARE_IN;
    return (compares && column && constant) ||
           (filter.GetExpressionClass() == duckdb::ExpressionClass::BOUND_CONJUNCTION && inside);
}

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

std::vector<ColumnFilter> FiltersOf(const duckdb::LogicalGet &get, const duckdb::MultiFileBindData &data) {
    std::vector<ColumnFilter> filters;
    for (auto &entry : get.table_filters) {
        const auto &column = get.GetColumnIndex(entry.GetIndex());
        if (column.IsVirtualColumn() || column.HasChildren() || column.HasType() ||
            data.IsGeneratedColumn(column.GetPrimaryIndex())) {
            continue;
        }
        auto &filter = duckdb::ExpressionFilter::GetExpressionFilter(entry.Filter(), "pruning");
        const auto &type = get.returned_types[column.GetPrimaryIndex()];
        if (HasBounds(type) && ComparesColumn(*filter.expr)) {
            filters.push_back({get.names[column.GetPrimaryIndex()].GetIdentifierName(), type, filter});
        }
    }
    return filters;
}

bool Excludes(duckdb::ClientContext &context, const std::vector<ColumnFilter> &filters,
              const ObjectStatistics &statistics) {
    for (const ColumnFilter &filter : filters) {
        auto found = statistics.find(filter.column);
        if (found == statistics.end() || found->second.type != filter.type.ToString()) {
            continue;
        }
        const auto result = filter.filter.CheckStatistics(context, ToDuckDB(found->second, filter.type));
        if (result == duckdb::FilterPropagateResult::FILTER_ALWAYS_FALSE ||
            result == duckdb::FilterPropagateResult::FILTER_FALSE_OR_NULL) {
            return true;
        }
    }
    return false;
}

//! The objects of one pool, and their places in the list of the scan's files.
struct PoolObjects {
    std::vector<std::string> objects;
    std::vector<size_t> places;
};

//! For each file, whether the filters exclude all of its rows.
std::vector<bool> ExcludedFiles(duckdb::ClientContext &context,
                                const duckdb::vector<duckdb::OpenFileInfo> &files,
                                const std::vector<ColumnFilter> &filters) {
    auto *opener = duckdb::ClientData::Get(context).file_opener.get();
    std::unordered_map<std::shared_ptr<RadosPool>, PoolObjects> pools;
    for (size_t place = 0; place < files.size(); place++) {
        PoolObjects &pool = pools[PoolOf(files[place].path, opener)];
        pool.objects.push_back(RadosPath::ParseObject(files[place].path).object);
        pool.places.push_back(place);
    }
    std::vector<bool> excluded(files.size());
    auto pins = PinsOf(context);
    for (const auto &[pool, list] : pools) {
        const auto examined = pool->Examine(list.objects, STATISTICS_ATTRIBUTE);
        for (size_t i = 0; i < examined.size(); i++) {
            const ObjectStatus &status = examined[i].status;
            if (status.version == 0) {
                continue; // reading says that it is gone
            }
            pins->Pin(*pool, list.objects[i], status.version);
            timespec modified;
            modified.tv_sec = status.modified_s;
            modified.tv_nsec = status.modified_ns;
            excluded[list.places[i]] =
                Excludes(context, filters, DecodeStatistics(examined[i].attribute, status.size, modified));
        }
    }
    return excluded;
}

void Prune(duckdb::ClientContext &context, duckdb::LogicalGet &get) {
    auto *data = PrunableScan(get);
    if (!data) {
        return;
    }
    const auto filters = FiltersOf(get, *data);
    if (filters.empty()) {
        return;
    }
    const auto files = data->file_list->GetAllFiles();
    const bool all_objects =
        std::all_of(files.begin(), files.end(), [](const auto &file) { return IsRadosPath(file.path); });
    if (!all_objects || files.size() < 2 || files.size() > EXAMINED_OBJECTS_MAX) {
        return;
    }
    const auto excluded = ExcludedFiles(context, files, filters);
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
