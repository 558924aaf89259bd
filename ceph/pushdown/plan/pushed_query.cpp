#include "ceph/pushdown/plan/pushed_query.hpp"

#include "ceph/query/statement.hpp"

#include "duckdb/common/error_data.hpp"
#include "duckdb/common/exception.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/planner/bound_expression_sql_exporter.hpp"
#include "duckdb/planner/expression/bound_columnref_expression.hpp"
#include "duckdb/planner/expression/bound_constant_expression.hpp"
#include "duckdb/planner/expression/bound_function_expression.hpp"
#include "duckdb/planner/expression/bound_reference_expression.hpp"
#include "duckdb/planner/expression_iterator.hpp"
#include "duckdb/planner/filter/expression_filter.hpp"

namespace rawduck_ceph {

namespace {

using duckdb::BoundColumnRefExpression;
using duckdb::Expression;
using duckdb::unique_ptr;

//! Longer filters, mostly IN lists, cost more to send than they save.
constexpr size_t FILTER_BYTES_MAX = 64 * 1024;

void InlineProjections(unique_ptr<Expression> &expression,
                       const std::unordered_map<duckdb::idx_t, duckdb::LogicalProjection *> &projections) {
    if (expression->GetExpressionClass() == duckdb::ExpressionClass::BOUND_COLUMN_REF) {
        const auto binding = expression->Cast<BoundColumnRefExpression>().Binding();
        auto found = projections.find(binding.table_index.index);
        if (found == projections.end()) {
            return;
        }
        expression = found->second->expressions[binding.column_index.GetIndex()]->Copy();
        InlineProjections(expression, projections);
        return;
    }
    duckdb::ExpressionIterator::EnumerateChildren(
        *expression, [&](unique_ptr<Expression> &child) { InlineProjections(child, projections); });
}

//! DuckDB adds and subtracts DECIMAL(w, s) as DECIMAL(w + 1, s), and has cast constants to this type. The
//! class binds the expression again: with a constant of the result's type it would use one more digit, and
//! cast each row back.
void NarrowDecimalConstants(unique_ptr<Expression> &expression) {
    duckdb::ExpressionIterator::EnumerateChildren(
        *expression, [](unique_ptr<Expression> &child) { NarrowDecimalConstants(child); });
    const auto &sum = expression->GetReturnType();
    if (expression->GetExpressionClass() != duckdb::ExpressionClass::BOUND_FUNCTION ||
        sum.id() != duckdb::LogicalTypeId::DECIMAL) {
        return;
    }
    const auto name = expression->Cast<duckdb::BoundFunctionExpression>().Function().GetName();
    const auto width = duckdb::DecimalType::GetWidth(sum);
    const auto scale = duckdb::DecimalType::GetScale(sum);
    if ((name.GetIdentifierName() != "+" && name.GetIdentifierName() != "-") || width - 1 <= scale) {
        return;
    }
    duckdb::ExpressionIterator::EnumerateChildren(*expression, [&](unique_ptr<Expression> &child) {
        if (child->GetExpressionClass() != duckdb::ExpressionClass::BOUND_CONSTANT ||
            child->GetReturnType() != sum) {
            return;
        }
        const auto &constant = child->Cast<duckdb::BoundConstantExpression>().GetValue();
        const auto narrow = duckdb::LogicalType::DECIMAL(static_cast<uint8_t>(width - 1), scale);
        if (auto fitting = constant.DefaultTryCastAs(narrow)) {
            child = duckdb::make_uniq<duckdb::BoundConstantExpression>(std::move(*fitting));
        }
    });
}

} // namespace

PushedQuery::PushedQuery(duckdb::ClientContext &context, duckdb::LogicalGet &get)
    : context_(context), get_(get) {
    request.duckdb_version = duckdb::DuckDB::LibraryVersion();
    for (auto &entry : get.table_filters) {
        if (duckdb::ExpressionFilter::IsOptionalFilter(entry.Filter())) {
            continue;
        }
        const auto &column = get.GetColumnIndex(entry.GetIndex());
        BoundColumnRefExpression reference(get.GetColumnType(column),
                                           duckdb::ColumnBinding(get.table_index, entry.GetIndex()));
        AddFilter(*entry.Filter().ToExpression(reference));
    }
    if (get.table_filters.HasMultiColumnFilters()) {
        for (auto &filter : get.table_filters.GetMultiColumnFilters()) {
            auto &over_columns = duckdb::ExpressionFilter::GetExpressionFilter(*filter, "pushdown");
            auto expression = over_columns.expr->Copy();
            duckdb::ExpressionIterator::VisitExpressionMutable<duckdb::BoundReferenceExpression>(
                expression, [&](duckdb::BoundReferenceExpression &reference, unique_ptr<Expression> &place) {
                    const duckdb::ColumnBinding binding(get.table_index,
                                                        over_columns.column_indexes[reference.Index()]);
                    place = duckdb::make_uniq<BoundColumnRefExpression>(reference.GetReturnType(), binding);
                });
            AddFilter(*expression);
        }
    }
}

void PushedQuery::AddProjection(duckdb::LogicalProjection &projection) {
    projections_[projection.table_index.index] = &projection;
}

unique_ptr<Expression> PushedQuery::Inlined(const Expression &expression) const {
    auto copy = expression.Copy();
    InlineProjections(copy, projections_);
    return copy;
}

std::string PushedQuery::ToSql(const Expression &expression) {
    auto inlined = Inlined(expression);
    NarrowDecimalConstants(inlined);
    duckdb::BoundExpressionSQLExportContext exporter;
    exporter.client_context = context_;
    exporter.discard_optimizer_metadata = true; // optional filters become TRUE
    std::vector<size_t> used;
    exporter.resolve_binding = [&](const duckdb::ColumnBinding &binding) {
        duckdb::optional<duckdb::ResolvedSQLColumnReference> resolved;
        if (binding.table_index != get_.table_index) {
            return resolved;
        }
        const auto &column = get_.GetColumnIndex(binding);
        if (column.IsVirtualColumn() || column.HasChildren() || column.HasType()) {
            return resolved;
        }
        used.push_back(column.GetPrimaryIndex());
        duckdb::ResolvedSQLColumnReference reference;
        reference.names = {get_.names[column.GetPrimaryIndex()]};
        reference.type = get_.returned_types[column.GetPrimaryIndex()];
        resolved = std::move(reference);
        return resolved;
    };
    auto exported = duckdb::BoundExpressionSQLExporter::Export(*inlined, exporter);
    if (exported.HasError()) {
        throw NotPushable{"no SQL for " + inlined->ToString()};
    }
    try {
        CheckExpression(*exported.GetValue());
    } catch (const duckdb::PermissionException &error) {
        throw NotPushable{duckdb::ErrorData(error).RawMessage()};
    }
    for (size_t column : used) {
        const std::string name = get_.names[column].GetIdentifierName();
        if (!IsPushableType(get_.returned_types[column])) {
            throw NotPushable{"column " + name + " has type " + get_.returned_types[column].ToString()};
        }
        bool known = false;
        for (const RequestColumn &other : request.columns) {
            known = known || other.name == name;
        }
        if (!known) {
            request.columns.push_back({name, get_.returned_types[column].ToString()});
        }
    }
    return exported.GetValue()->ToString();
}

void PushedQuery::AddFilter(const Expression &filter) {
    const std::string sql = ToSql(filter);
    request.filter += (request.filter.empty() ? "(" : " AND (") + sql + ")";
    if (request.filter.size() > FILTER_BYTES_MAX) {
        throw NotPushable{"its filter is too long"};
    }
    filters.push_back(Inlined(filter));
}

size_t PushedQuery::AddOutputSql(const std::string &sql, const duckdb::LogicalType &type) {
    if (!IsPushableType(type)) {
        throw NotPushable{"a result has type " + type.ToString()};
    }
    // The class may bind another overload; the cast makes its type the expected one.
    request.outputs.push_back("CAST(" + sql + " AS " + type.ToString() + ")");
    types.push_back(type);
    return request.outputs.size() - 1;
}

size_t PushedQuery::AddOutput(const Expression &expression) {
    return AddOutputSql(ToSql(expression), expression.GetReturnType());
}

size_t PushedQuery::AddGroup(const Expression &expression) {
    groups.push_back(Inlined(expression));
    return AddOutput(expression);
}

size_t PushedQuery::AddColumn(size_t position) {
    const auto &column = get_.GetColumnIds()[position];
    return AddOutput(
        BoundColumnRefExpression(get_.GetColumnType(column),
                                 duckdb::ColumnBinding(get_.table_index, duckdb::ProjectionIndex(position))));
}

size_t PushedQuery::AddAggregate(const std::string &function,
                                 const duckdb::BoundAggregateExpression &aggregate,
                                 const duckdb::LogicalType &type) {
    const auto &children = aggregate.GetChildren();
    std::string sql = function + "(" + (children.empty() ? "*" : ToSql(*children[0])) + ")";
    if (aggregate.GetFilter()) {
        sql += " FILTER (WHERE " + ToSql(*aggregate.GetFilter()) + ")";
    }
    return AddOutputSql(sql, type);
}

} // namespace rawduck_ceph
