#include "gpu/plan/table_plan.hpp"

#include "common/process/ordered_parallel.hpp"
#include "gpu/plan/segments.hpp"

#include "duckdb/catalog/catalog.hpp"
#include "duckdb/catalog/catalog_entry/table_catalog_entry.hpp"
#include "duckdb/catalog/entry_lookup_info.hpp"
#include "duckdb/common/enums/filter_propagate_result.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/planner/binder.hpp"
#include "duckdb/storage/block_manager.hpp"
#include "duckdb/storage/data_table.hpp"
#include "duckdb/storage/statistics/numeric_stats.hpp"
#include "duckdb/storage/table/data_table_info.hpp"
#include "duckdb/storage/table/row_group.hpp"
#include "duckdb/storage/table/row_group_collection.hpp"
#include "duckdb/storage/table/row_group_segment_tree.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "duckdb/transaction/local_storage.hpp"

#include <algorithm>

namespace rawduck::gpu {
namespace {

using duckdb::CatalogType;
using duckdb::ClientContext;
using duckdb::Identifier;
using duckdb::TableCatalogEntry;

TableCatalogEntry &FindTable(ClientContext &context, const std::string &name) {
    duckdb::CatalogEntryRetriever retriever(context);
    const auto qualified = duckdb::Binder::BindTableName(retriever, duckdb::QualifiedName::Parse(name));
    auto &entry =
        duckdb::Catalog::GetEntry(context, duckdb::EntryLookupInfo(CatalogType::TABLE_ENTRY, qualified));
    if (entry.type != CatalogType::TABLE_ENTRY || !entry.Cast<TableCatalogEntry>().IsDuckTable()) {
        throw duckdb::InvalidInputException(
            "%s is no table in DuckDB's own storage; its rows have no blocks to read. Copy it into one: "
            "CREATE TABLE ... AS FROM %s",
            name, name);
    }
    return entry.Cast<TableCatalogEntry>();
}

TableColumn DescribeColumn(const duckdb::ColumnDefinition &column) {
    if (column.Generated()) {
        return {column.Name().GetIdentifierName(), column.Type(), 0, std::nullopt};
    }
    return {column.Name().GetIdentifierName(), column.Type(), column.StorageOid(), KindOf(column.Type())};
}

std::vector<TableColumn> GeneratedColumns(const TableCatalogEntry &table) {
    std::vector<TableColumn> columns;
    for (auto &column : table.GetColumns().Logical()) {
        if (column.Generated()) {
            columns.push_back(DescribeColumn(column));
        }
    }
    return columns;
}

std::vector<TableColumn> ChooseColumns(const TableCatalogEntry &table,
                                       const std::vector<std::string> &names) {
    std::vector<TableColumn> columns;
    if (names.empty()) {
        for (auto &column : table.GetColumns().Physical()) {
            columns.push_back(DescribeColumn(column));
        }
        return columns;
    }
    for (const std::string &name : names) {
        if (!table.ColumnExists(Identifier(name))) {
            throw duckdb::BinderException("table %s has no column %s", table.name.GetIdentifierName(), name);
        }
        const auto &column = table.GetColumn(Identifier(name));
        if (column.Generated()) {
            ThrowGenerated(name);
        }
        columns.push_back(DescribeColumn(column));
    }
    return columns;
}

//! Whether SQL compares the two as this type of column does. It compares numbers with DOUBLE as DOUBLE, which are not
//! as exact, makes a TIMESTAMP WITH TIME ZONE of what has none by the time zone of the session, and compares an ENUM
//! with text as text: its statistics have the order in which its values were declared.
bool IsComparedAsColumn(const duckdb::LogicalType &column, const duckdb::LogicalType &constant) {
    const auto is_floating = [](const duckdb::LogicalType &type) {
        return type == duckdb::LogicalType::FLOAT || type == duckdb::LogicalType::DOUBLE;
    };
    const auto has_zone = [](const duckdb::LogicalType &type) {
        return type == duckdb::LogicalType::TIMESTAMP_TZ;
    };
    return (!is_floating(constant) || is_floating(column)) && has_zone(column) == has_zone(constant) &&
           column.id() != duckdb::LogicalTypeId::ENUM;
}

//! What statistics of the column's type decide for sure: a constant that the type cannot hold exactly prunes nothing.
std::vector<Prunable> PrunableOf(const TableCatalogEntry &table, const std::vector<Condition> &conditions) {
    std::vector<Prunable> prunable;
    for (const Condition &condition : conditions) {
        const TableColumn column = ChooseColumns(table, {condition.column}).front();
        if (!IsComparedAsColumn(column.type, condition.constant.type())) {
            continue;
        }
        duckdb::string error;
        const auto constant = condition.constant.DefaultTryCastAs(column.type, &error);
        if (!constant && condition.constant.type().id() == duckdb::LogicalTypeId::VARCHAR) {
            throw duckdb::InvalidInputException("column %s cannot be compared with %s: %s", column.name,
                                                condition.constant.ToSQLString(), error);
        }
        if (!constant || constant->IsNull()) {
            continue;
        }
        const auto back = constant->DefaultTryCastAs(condition.constant.type());
        if (back && *back == condition.constant) {
            prunable.push_back({column.storage_index, condition.comparison, *constant});
        }
    }
    return prunable;
}

bool CanSatisfy(const duckdb::RowGroup &row_group, const std::vector<Prunable> &conditions) {
    return std::all_of(conditions.begin(), conditions.end(), [&](const Prunable &condition) {
        const auto stats = row_group.GetStatistics(duckdb::StorageIndex(condition.storage_index));
        if (!stats || stats->GetStatsType() != duckdb::StatisticsType::NUMERIC_STATS) {
            return true;
        }
        const auto found = duckdb::NumericStats::CheckZonemap(
            *stats, condition.comparison, duckdb::array_ptr<const duckdb::Value>(&condition.constant, 1));
        return found != duckdb::FilterPropagateResult::FILTER_ALWAYS_FALSE &&
               found != duckdb::FilterPropagateResult::FILTER_FALSE_OR_NULL;
    });
}

//! Counts and marks what the transaction sees of the first `planned.rows` rows: what is appended meanwhile is none of
//! its business.
void FindVisibleRows(duckdb::RowGroup &row_group, duckdb::DuckTransaction &transaction,
                     PlannedRowGroup &planned) {
    planned.visible_rows =
        row_group.GetVisibleRowCount(duckdb::TransactionData(transaction), 0, planned.rows);
    if (planned.visible_rows == planned.rows) {
        return;
    }
    planned.visible_rows = 0;
    const duckdb::ScanOptions options{duckdb::TransactionData(transaction)};
    duckdb::SelectionVector selected(STANDARD_VECTOR_SIZE);
    planned.visible.assign(planned.rows, 0);
    for (uint64_t start = 0; start < planned.rows; start += STANDARD_VECTOR_SIZE) {
        const uint64_t count = std::min<uint64_t>(STANDARD_VECTOR_SIZE, planned.rows - start);
        const uint64_t seen = row_group.GetSelVector(options, start / STANDARD_VECTOR_SIZE, selected, count);
        for (uint64_t i = 0; i < seen; i++) {
            planned.visible[start + (seen == count ? i : selected.get_index(i))] = 1;
        }
        planned.visible_rows += seen;
    }
    if (planned.visible_rows == planned.rows) {
        planned.visible.clear();
    }
}

//! What a thread takes at a time. A row group takes some 10 us: most of that is waiting for memory.
constexpr uint64_t ROW_GROUPS_AT_A_TIME = 32;

//! But for its node and lease, which are there.
void PlanRowGroup(const TablePlan &plan, duckdb::DuckTransaction &transaction, PlannedRowGroup &planned) {
    duckdb::RowGroup &row_group = *planned.lease;
    planned.index = planned.node->GetIndex();
    planned.row_start = planned.node->GetRowStart();
    planned.rows = row_group.count;
    planned.is_pruned = !CanSatisfy(row_group, plan.prunable);
    FindVisibleRows(row_group, transaction, planned);
    planned.columns.reserve(plan.columns.size());
    for (const TableColumn &column : plan.columns) {
        planned.columns.push_back(
            PlanColumn(row_group.GetRawColumnData(column.storage_index), column, planned.rows));
    }
}

} // namespace

void ThrowGenerated(const std::string &column) {
    throw duckdb::InvalidInputException("column %s is generated: it is computed, not stored; name the other "
                                        "columns, or take it by gpu.query",
                                        column);
}

TablePlan DescribeTable(ClientContext &context, const std::string &name,
                        const std::vector<std::string> &columns, const std::vector<Condition> &conditions) {
    auto &entry = FindTable(context, name);
    TablePlan plan;
    plan.name = duckdb::QualifiedName(entry.ParentCatalog().GetName(), entry.ParentSchema().name, entry.name)
                    .ToString();
    plan.columns = ChooseColumns(entry, columns);
    if (columns.empty()) {
        plan.generated = GeneratedColumns(entry);
    }
    plan.prunable = PrunableOf(entry, conditions);
    plan.table = entry.GetStorage().shared_from_this();
    plan.database = entry.GetStorage().GetAttached().shared_from_this();
    return plan;
}

void PlanRowGroups(ClientContext &context, TablePlan &plan,
                   const std::function<void(const PlannedRowGroup &group)> &on_group) {
    auto &table = *plan.table;
    auto &transaction = duckdb::DuckTransaction::Get(context, table.GetAttached());
    // What a checkpoint replaces is replaced before or after. Not longer: a checkpoint waits for this lock, and nothing
    // interrupts it. What is held of the row groups and blocks stays as it is.
    const auto lock = transaction.SharedLockTable(*table.GetDataTableInfo());
    plan.tree = table.GetRowGroupCollection()->GetRowGroups();
    plan.blocks = &table.GetRowGroupCollection()->GetBlockManager();
    plan.block_bytes = plan.blocks->GetBlockAllocSize();
    plan.local_rows = duckdb::LocalStorage::Get(transaction).AddedRows(table);
    for (auto &node : plan.tree->SegmentNodes()) {
        plan.row_groups.emplace_back();
        plan.row_groups.back().node = &node;
        plan.row_groups.back().lease = node.ReferenceNode();
    }
    const auto plan_one = [&](uint64_t i) { PlanRowGroup(plan, transaction, plan.row_groups[i]); };
    OrderedParallel(plan.row_groups.size(), ROW_GROUPS_AT_A_TIME, plan_one,
                    [&](uint64_t i) { on_group(plan.row_groups[i]); });
}

} // namespace rawduck::gpu
