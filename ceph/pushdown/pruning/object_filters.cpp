#include "ceph/pushdown/pruning/object_filters.hpp"

#include "ceph/parquet/object_statistics.hpp"

#include "duckdb/planner/expression/bound_comparison_expression.hpp"
#include "duckdb/planner/expression/bound_function_expression.hpp"
#include "duckdb/planner/expression_iterator.hpp"
#include "duckdb/planner/filter/table_filter_functions.hpp"
#include "duckdb/storage/statistics/base_statistics.hpp"
#include "duckdb/storage/statistics/numeric_stats.hpp"
#include "duckdb/storage/statistics/string_stats.hpp"

#include <unordered_map>

namespace rawduck_ceph {

namespace {

using duckdb::LogicalType;

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

//! Whether it is a join's map of the ranges in which its keys lie, of the column itself. DuckDB makes it instead of
//! a comparison with the smallest and the largest key.
bool MapsKeys(const duckdb::Expression &filter) {
    if (filter.GetExpressionClass() != duckdb::ExpressionClass::BOUND_FUNCTION) {
        return false;
    }
    const auto &function = filter.Cast<duckdb::BoundFunctionExpression>();
    return function.Function().GetName() == duckdb::PrefixRangeScalarFun::NAME &&
           IsColumn(*function.GetChildren()[0]);
}

//! Whether bounds of the column may decide about the filter: it compares the column itself with constants, or with
//! a join's keys.
bool ComparesColumn(const duckdb::Expression &filter) {
    if (auto optional = duckdb::ExpressionFilter::GetOptionalFilterChild(filter)) {
        return ComparesColumn(*optional);
    }
    if (MapsKeys(filter)) {
        return true;
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

//! The objects of one pool, and their places in the list of all.
struct ObjectsOfPool {
    std::vector<std::string> objects;
    std::vector<size_t> places;
};

} // namespace

bool IsDecidable(const LogicalType &type, const duckdb::ExpressionFilter &filter) {
    return HasBounds(type) && ComparesColumn(*filter.expr);
}

std::vector<bool> ExcludedObjects(duckdb::ClientContext &context, const std::vector<PoolObject> &objects,
                                  const std::vector<ColumnFilter> &filters, ObjectPins &pins) {
    std::unordered_map<std::shared_ptr<RadosPool>, ObjectsOfPool> pools;
    for (size_t place = 0; place < objects.size(); place++) {
        ObjectsOfPool &list = pools[objects[place].pool];
        list.objects.push_back(objects[place].object);
        list.places.push_back(place);
    }
    std::vector<bool> excluded(objects.size());
    for (const auto &[pool, list] : pools) {
        const auto examined = pool->Examine(list.objects, STATISTICS_ATTRIBUTE);
        for (size_t i = 0; i < examined.size(); i++) {
            const ObjectStatus &status = examined[i].status;
            if (status.version == 0) {
                continue; // reading says that it is gone
            }
            pins.Pin(*pool, list.objects[i], status.version);
            timespec modified;
            modified.tv_sec = status.modified_s;
            modified.tv_nsec = status.modified_ns;
            excluded[list.places[i]] =
                Excludes(context, filters, DecodeStatistics(examined[i].attribute, status.size, modified));
        }
    }
    return excluded;
}

} // namespace rawduck_ceph
