#include "ceph/pushdown/plan/pushed_query.hpp"

#include "ceph/pushdown/proof/neutral_settings.hpp"
#include "ceph/pushdown/proof/object_columns.hpp"
#include "ceph/pushdown/proof/round_trip.hpp"
#include "ceph/query/statement.hpp"

#include "duckdb/common/error_data.hpp"
#include "duckdb/common/exception.hpp"
#include "duckdb/function/builtin_function_lookup.hpp"
#include "duckdb/function/function_binder.hpp"
#include "duckdb/function/scalar/compressed_materialization_utils.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/planner/bound_expression_sql_exporter.hpp"
#include "duckdb/planner/expression/bound_case_expression.hpp"
#include "duckdb/planner/expression/bound_columnref_expression.hpp"
#include "duckdb/planner/expression/bound_constant_expression.hpp"
#include "duckdb/planner/expression/bound_function_expression.hpp"
#include "duckdb/planner/expression/bound_operator_expression.hpp"
#include "duckdb/planner/expression/bound_reference_expression.hpp"
#include "duckdb/planner/expression_iterator.hpp"
#include "duckdb/planner/filter/expression_filter.hpp"

#include <algorithm>

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

//! A function or cast with which the optimizer makes values shorter before it sorts or groups them. It is
//! defined for the values that the statistics allow, is one-to-one and keeps their order.
bool IsCompression(const Expression &expression) {
    if (expression.GetExpressionClass() != duckdb::ExpressionClass::BOUND_FUNCTION) {
        return false;
    }
    const auto type = duckdb::CMUtils::GetExpressionType(expression.Cast<duckdb::BoundFunctionExpression>());
    return type == duckdb::CMExpressionType::COMPRESS || type == duckdb::CMExpressionType::CAST;
}

} // namespace

PushedQuery::PushedQuery(duckdb::ClientContext &context, duckdb::LogicalGet &get)
    : plain(std::make_shared<PlainQuery>(get)), context_(context), get_(get) {
    const std::string setting = SettingInTheWay(context);
    if (!setting.empty()) {
        throw NotPushable{setting};
    }
    request.duckdb_version = duckdb::DuckDB::LibraryVersion();
    for (auto &entry : get.table_filters) {
        if (duckdb::ExpressionFilter::IsOptionalFilter(entry.Filter())) {
            continue;
        }
        const auto &column = get.GetColumnIndex(entry.GetIndex());
        BoundColumnRefExpression reference(get.GetColumnType(column),
                                           duckdb::ColumnBinding(get.table_index, entry.GetIndex()));
        AddFilterSql(*entry.Filter().ToExpression(reference));
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
            AddFilterSql(*expression);
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

duckdb::optional_ptr<const duckdb::ColumnIndex>
PushedQuery::ColumnOf(const duckdb::ColumnBinding &binding) const {
    if (binding.table_index != get_.table_index) {
        return nullptr;
    }
    const auto &column = get_.GetColumnIndex(binding);
    return column.IsVirtualColumn() || column.HasChildren() || column.HasType() ? nullptr : &column;
}

void PushedQuery::RequireRoundTrip(const Expression &expression, const std::string &sql,
                                   const std::vector<size_t> &columns) const {
    RequestSchema schema;
    for (size_t column : columns) {
        schema.names.push_back(NameInObjects(get_, column));
        schema.types.push_back(get_.returned_types[column]);
    }
    const std::string difference =
        RoundTripDifference(context_, expression, sql, schema, [&](const Expression &reference) {
            const auto column = ColumnOf(reference.Cast<BoundColumnRefExpression>().Binding());
            return column ? NameInObjects(get_, column->GetPrimaryIndex()).GetIdentifierName() : "";
        });
    if (!difference.empty()) {
        throw NotPushable{difference};
    }
}

void PushedQuery::RequirePushable(const std::vector<size_t> &columns) const {
    for (size_t column : columns) {
        const std::string text = "column " + get_.names[column].GetIdentifierName();
        if (IsMadeByReader(get_, column)) {
            throw NotPushable{text + " is a partition of the objects' paths, which OSDs do not have"};
        }
        if (!IsPushableType(get_.returned_types[column])) {
            throw NotPushable{text + " has type " + get_.returned_types[column].ToString()};
        }
        const auto name = NameInObjects(get_, column);
        if (name.empty()) {
            throw NotPushable{text + " has no name in the objects"};
        }
        if (IsNamedAsVirtualColumn(get_, name)) {
            throw NotPushable{text + " is named in the objects as one that the reader makes"};
        }
    }
}

std::string PushedQuery::ToSql(const Expression &expression) {
    auto inlined = Inlined(expression);
    auto narrowed = inlined->Copy();
    NarrowDecimalConstants(narrowed);
    duckdb::BoundExpressionSQLExportContext exporter;
    exporter.client_context = context_;
    std::vector<size_t> used;
    exporter.resolve_binding = [&](const duckdb::ColumnBinding &binding) {
        duckdb::optional<duckdb::ResolvedSQLColumnReference> resolved;
        const auto column = ColumnOf(binding);
        if (!column) {
            return resolved;
        }
        const size_t number = column->GetPrimaryIndex();
        if (std::find(used.begin(), used.end(), number) == used.end()) {
            used.push_back(number);
        }
        duckdb::ResolvedSQLColumnReference reference;
        const auto name = NameInObjects(get_, number);
        reference.names = {name.empty() ? get_.names[number] : name}; // an empty one is refused below
        reference.type = get_.returned_types[number];
        resolved = std::move(reference);
        return resolved;
    };
    auto exported = duckdb::BoundExpressionSQLExporter::Export(*narrowed, exporter);
    if (exported.HasError()) {
        throw NotPushable{"no SQL for " + inlined->ToString()};
    }
    RequirePushable(used);
    const std::string sql = exported.GetValue()->ToString();
    RequireRoundTrip(*narrowed, sql, used);
    for (size_t column : used) {
        const std::string name = NameInObjects(get_, column).GetIdentifierName();
        const bool known = std::any_of(request.columns.begin(), request.columns.end(),
                                       [&](const RequestColumn &other) { return other.name == name; });
        if (!known) {
            request.columns.push_back({name, get_.returned_types[column].ToString()});
        }
    }
    return sql;
}

void PushedQuery::AddFilter(const duckdb::LogicalFilter &filter) {
    plain->filters.emplace_back();
    for (const auto &condition : filter.expressions) {
        plain->filters.back().push_back(Inlined(*condition));
        AddFilterSql(*condition);
    }
}

void PushedQuery::AddOptionalFilters() {
    for (auto &entry : get_.table_filters) {
        auto &filter = duckdb::ExpressionFilter::GetExpressionFilter(entry.Filter(), "pushdown");
        const auto optional = duckdb::ExpressionFilter::GetOptionalFilterChild(*filter.expr);
        if (!optional) {
            continue;
        }
        auto expression = optional->Copy();
        duckdb::ExpressionIterator::VisitExpressionMutable<duckdb::BoundReferenceExpression>(
            expression, [&](duckdb::BoundReferenceExpression &reference, unique_ptr<Expression> &place) {
                place = duckdb::make_uniq<BoundColumnRefExpression>(
                    reference.GetReturnType(), duckdb::ColumnBinding(get_.table_index, entry.GetIndex()));
            });
        const std::string before = request.filter;
        try {
            AddFilterSql(*expression);
        } catch (const NotPushable &) {
            request.filter = before; // perhaps a part of it is there
        }
    }
}

void PushedQuery::AddFilterSql(const Expression &filter) {
    if (duckdb::ExpressionFilter::IsOptionalExpression(filter)) {
        return; // it only helps to skip rows that another filter removes
    }
    if (filter.GetExpressionType() == duckdb::ExpressionType::CONJUNCTION_AND) {
        duckdb::ExpressionIterator::EnumerateChildren(filter,
                                                      [&](const Expression &child) { AddFilterSql(child); });
        return;
    }
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
    const size_t output = AddOutputSql(ToSql(expression), expression.GetReturnType());
    plain->outputs.push_back(plain->AddInput(Inlined(expression)));
    return output;
}

unique_ptr<Expression> PushedQuery::AddGroup(const Expression &expression, duckdb::TableIndex table) {
    auto grouped = Inlined(expression);
    unique_ptr<Expression> *input = &grouped;
    while (IsCompression(**input)) {
        input = &(*input)->Cast<duckdb::BoundFunctionExpression>().GetChildrenMutable()[0];
    }
    groups.push_back((*input)->Copy());
    const size_t output = AddOutput(**input);
    *input = duckdb::make_uniq<BoundColumnRefExpression>(
        types[output], duckdb::ColumnBinding(table, duckdb::ProjectionIndex(output)));
    return grouped;
}

size_t PushedQuery::AddSortKey(const Expression &expression) {
    auto key = Inlined(expression);
    const Expression *input = key.get();
    while (IsCompression(*input)) {
        input = input->Cast<duckdb::BoundFunctionExpression>().GetChildren()[0].get();
    }
    return AddOutput(*input);
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
    const size_t output = AddOutputSql(sql, type);
    auto argument = children.empty() ? nullptr : plain->AddInput(Inlined(*children[0]));
    auto filter = aggregate.GetFilter() ? plain->AddInput(Inlined(*aggregate.GetFilter())) : nullptr;
    plain->outputs.push_back(AggregateOfRow(function, argument.get(), filter.get()));
    if (function == "sum" && duckdb::GetTypeIdSize(argument->GetReturnType().InternalType()) > 8) {
        plain->is_aggregated = false;
    }
    plain->partials.push_back(Bound(function, std::move(argument), std::move(filter)));
    const auto bound = plain->partials.back()->GetReturnType();
    if (bound != type) {
        throw NotPushable{sql + " would be bound as " + bound.ToString() + ", not as " + type.ToString()};
    }
    return output;
}

unique_ptr<Expression> PushedQuery::Bound(const std::string &function, unique_ptr<Expression> argument,
                                          unique_ptr<Expression> filter) const {
    duckdb::vector<unique_ptr<Expression>> arguments;
    duckdb::vector<duckdb::LogicalType> types_of_arguments;
    if (argument) {
        types_of_arguments.push_back(argument->GetReturnType());
        arguments.push_back(std::move(argument));
    }
    const duckdb::Identifier name(arguments.empty() ? "count_star" : function);
    return duckdb::FunctionBinder(context_).BindAggregateFunction(
        duckdb::GetBuiltinAggregateFunction(context_, name, types_of_arguments), std::move(arguments),
        std::move(filter));
}

unique_ptr<Expression> PushedQuery::AggregateOfRow(const std::string &function,
                                                   duckdb::optional_ptr<const Expression> argument,
                                                   duckdb::optional_ptr<const Expression> filter) {
    using duckdb::BoundCaseExpression;
    using duckdb::BoundConstantExpression;
    using duckdb::make_uniq;
    auto value = argument ? argument->Copy() : nullptr;
    auto otherwise = duckdb::Value::BIGINT(0);
    if (function != "count") {
        otherwise = duckdb::Value(value->GetReturnType());
    } else if (value) {
        auto counts = make_uniq<duckdb::BoundOperatorExpression>(duckdb::ExpressionType::OPERATOR_IS_NOT_NULL,
                                                                 duckdb::LogicalType::BOOLEAN);
        counts->GetChildrenMutable().push_back(std::move(value));
        value = make_uniq<BoundCaseExpression>(std::move(counts),
                                               make_uniq<BoundConstantExpression>(duckdb::Value::BIGINT(1)),
                                               make_uniq<BoundConstantExpression>(otherwise));
    } else {
        value = make_uniq<BoundConstantExpression>(duckdb::Value::BIGINT(1));
    }
    if (!filter) {
        return value;
    }
    return make_uniq<BoundCaseExpression>(filter->Copy(), std::move(value),
                                          make_uniq<BoundConstantExpression>(otherwise));
}

} // namespace rawduck_ceph
