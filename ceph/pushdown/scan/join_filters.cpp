#include "ceph/pushdown/scan/join_filters.hpp"

#include "ceph/pushdown/proof/round_trip.hpp"
#include "ceph/pushdown/pruning/object_filters.hpp"
#include "ceph/query/statement.hpp"

#include "duckdb/common/exception.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/planner/bound_expression_sql_exporter.hpp"
#include "duckdb/planner/expression/bound_columnref_expression.hpp"
#include "duckdb/planner/expression/bound_conjunction_expression.hpp"
#include "duckdb/planner/expression/bound_function_expression.hpp"
#include "duckdb/planner/expression/bound_reference_expression.hpp"
#include "duckdb/planner/expression_iterator.hpp"
#include "duckdb/planner/filter/expression_filter.hpp"
#include "duckdb/planner/filter/table_filter_functions.hpp"

#include <algorithm>

namespace rawduck_ceph {

namespace {

using duckdb::Expression;
using duckdb::unique_ptr;

//! Longer filters cost more to send and to evaluate than they save.
constexpr size_t JOIN_FILTER_BYTES_MAX = 16 * 1024;

//! The filter inside of an optional filter; null for other expressions.
const Expression *UnwrapOptional(const Expression &expression) {
    if (expression.GetExpressionClass() != duckdb::ExpressionClass::BOUND_FUNCTION) {
        return nullptr;
    }
    auto &function = expression.Cast<duckdb::BoundFunctionExpression>();
    if (!duckdb::TableFilterFunctions::IsTableFilterFunction(function.Function()) || !function.BindInfo()) {
        return nullptr;
    }
    if (auto *optional = dynamic_cast<duckdb::OptionalFilterFunctionData *>(function.BindInfo().get())) {
        return optional->child_filter_expr.get();
    }
    if (auto *selective =
            dynamic_cast<duckdb::SelectivityOptionalFilterFunctionData *>(function.BindInfo().get())) {
        return selective->child_filter_expr.get();
    }
    return nullptr;
}

//! The filter in SQL over the column `name`; empty where it has no form in SQL that means the same.
std::string ColumnFilterSql(duckdb::ClientContext &context, const Expression &filter,
                            const std::string &name) {
    auto expression = filter.Copy();
    duckdb::LogicalType type;
    duckdb::ExpressionIterator::VisitExpressionMutable<duckdb::BoundReferenceExpression>(
        expression, [&](duckdb::BoundReferenceExpression &reference, unique_ptr<Expression> &place) {
            type = reference.GetReturnType();
            place = duckdb::make_uniq<duckdb::BoundColumnRefExpression>(
                type, duckdb::ColumnBinding(duckdb::TableIndex(0), duckdb::ProjectionIndex(0)));
        });
    duckdb::BoundExpressionSQLExportContext exporter;
    exporter.client_context = context;
    exporter.resolve_binding = [&](const duckdb::ColumnBinding &) {
        duckdb::ResolvedSQLColumnReference reference;
        reference.names = {duckdb::Identifier(name)};
        reference.type = type;
        return duckdb::optional<duckdb::ResolvedSQLColumnReference>(std::move(reference));
    };
    auto exported = duckdb::BoundExpressionSQLExporter::Export(*expression, exporter);
    if (exported.HasError()) {
        return {};
    }
    std::string sql = exported.GetValue()->ToString();
    const RequestSchema schema{{duckdb::Identifier(name)}, {type}};
    const std::string difference =
        RoundTripDifference(context, *expression, sql, schema, [&](const Expression &) { return name; });
    return difference.empty() ? sql : "";
}

//! Calls `add` for each part of a conjunction that has a form in SQL.
template <class ADD>
void CollectFilters(duckdb::ClientContext &context, const Expression &filter, const std::string &name,
                    ADD add) {
    if (const Expression *inner = UnwrapOptional(filter)) {
        CollectFilters(context, *inner, name, add);
    } else if (filter.GetExpressionType() == duckdb::ExpressionType::CONJUNCTION_AND) {
        duckdb::ExpressionIterator::EnumerateChildren(
            filter, [&](const Expression &child) { CollectFilters(context, child, name, add); });
    } else {
        std::string sql = ColumnFilterSql(context, filter, name);
        if (!sql.empty()) {
            add(sql);
        }
    }
}

} // namespace

void AddJoinFilters(duckdb::ClientContext &context, const duckdb::TableFilterSet &filters,
                    const std::vector<RequestColumn> &columns, Request &request) {
    for (auto &entry : filters) {
        const size_t position = entry.GetIndex().GetIndex();
        if (position >= columns.size() || columns[position].name.empty()) {
            continue;
        }
        const RequestColumn &column = columns[position];
        auto &filter = duckdb::ExpressionFilter::GetExpressionFilter(entry.Filter(), "pushdown");
        CollectFilters(context, *filter.expr, column.name, [&](const std::string &sql) {
            if (request.filter.size() + sql.size() > JOIN_FILTER_BYTES_MAX) {
                return;
            }
            request.filter += (request.filter.empty() ? "(" : " AND (") + sql + ")";
            const bool known =
                std::any_of(request.columns.begin(), request.columns.end(),
                            [&](const RequestColumn &other) { return other.name == column.name; });
            if (!known) {
                request.columns.push_back(column);
            }
        });
    }
}

std::vector<CallTarget> TargetsWithMatches(duckdb::ClientContext &context,
                                           const duckdb::TableFilterSet &filters,
                                           const std::vector<RequestColumn> &columns,
                                           const duckdb::vector<duckdb::LogicalType> &types,
                                           const std::vector<CallTarget> &targets, ObjectPins &pins) {
    std::vector<ColumnFilter> decidable;
    for (auto &entry : filters) {
        const size_t position = entry.GetIndex().GetIndex();
        auto &filter = duckdb::ExpressionFilter::GetExpressionFilter(entry.Filter(), "pruning");
        const bool is_plain = position < columns.size() && !columns[position].name.empty();
        if (is_plain && IsDecidable(types[position], filter)) {
            decidable.push_back({columns[position].name, types[position], filter});
        }
    }
    if (decidable.empty() || targets.size() < 2 || targets.size() > EXAMINED_OBJECTS_MAX) {
        return targets;
    }
    std::vector<PoolObject> objects;
    for (const CallTarget &target : targets) {
        objects.push_back({target.pool, target.object});
    }
    const auto excluded = ExcludedObjects(context, objects, decidable, pins);
    std::vector<CallTarget> left;
    for (size_t i = 0; i < targets.size(); i++) {
        if (!excluded[i]) {
            left.push_back(targets[i]);
        }
    }
    return left;
}

} // namespace rawduck_ceph
