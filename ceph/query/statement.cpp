#include "ceph/query/statement.hpp"

#include "ceph/query/exact_column.hpp"

#include "duckdb/common/exception.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/parser/expression/cast_expression.hpp"
#include "duckdb/parser/expression/columnref_expression.hpp"
#include "duckdb/parser/expression/constant_expression.hpp"
#include "duckdb/parser/expression/function_expression.hpp"
#include "duckdb/parser/parsed_expression_iterator.hpp"
#include "duckdb/parser/parser.hpp"
#include "duckdb/parser/query_node/select_node.hpp"
#include "duckdb/parser/tableref/subqueryref.hpp"
#include "duckdb/parser/tableref/table_function_ref.hpp"

#include <unordered_set>

namespace rawduck_ceph {

namespace {

using duckdb::ExpressionClass;
using duckdb::ExpressionType;
using duckdb::Identifier;
using duckdb::make_uniq;
using duckdb::ParsedExpression;
using duckdb::unique_ptr;

//! Deterministic functions that access nothing but their arguments and return values that are not much
//! longer: a request cannot enlarge a row.
const auto &ALLOWED_FUNCTIONS = *new const std::unordered_set<std::string>{
    // operators
    "+", "-", "*", "/", "//", "%", "~~", "!~~", "~~~", "~~*", "!~~*", "like_escape", "not_like_escape",
    "ilike_escape", "not_ilike_escape",
    // text
    "prefix", "suffix", "contains", "starts_with", "ends_with", "substring", "substr", "left", "right",
    "length", "strlen", "lower", "upper", "trim", "ltrim", "rtrim", "regexp_matches", "regexp_full_match",
    // numbers
    "abs", "sign", "round", "floor", "ceil", "ceiling", "trunc", "greatest", "least", "isnan", "isfinite",
    // dates
    "year", "month", "day", "hour", "minute", "second", "quarter", "week", "dayofweek", "dayofyear",
    "date_part", "datepart", "date_trunc", "datetrunc", "epoch", "to_days", "to_months", "to_years",
    // aggregates
    "sum", "sum_no_overflow", "count", "count_star", "min", "max", "bool_and", "bool_or"};

const auto &ALLOWED_TYPES = *new const std::unordered_set<std::string>{
    "boolean",      "tinyint",      "smallint",     "integer",   "bigint", "hugeint", "utinyint",
    "usmallint",    "uinteger",     "ubigint",      "float",     "double", "real",    "decimal",
    "varchar",      "date",         "time",         "timestamp", "blob",   "bool",    "timestamp_s",
    "timestamp_ms", "timestamp_ns", "timestamp_us", "interval"};

//! Deeper expressions are rejected before they are parsed, because the parser and the binder are recursive.
constexpr int NESTING_MAX = 200;

//! Counts brackets that the parser sees as such: not those in texts, names and comments.
void CheckNesting(const std::string &sql) {
    int depth = 0;
    for (const duckdb::SimplifiedToken &token : duckdb::Parser::Tokenize(sql)) {
        if (token.type != duckdb::SimplifiedTokenType::SIMPLIFIED_TOKEN_OPERATOR) {
            continue;
        }
        const char c = sql[token.start];
        depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
        if (depth > NESTING_MAX) {
            throw duckdb::PermissionException("an expression is nested more than %d deep", NESTING_MAX);
        }
    }
}

void CheckTypeName(const duckdb::TypeExpression &type) {
    std::string name = duckdb::StringUtil::Lower(type.GetTypeName().GetIdentifierName());
    if (ALLOWED_TYPES.count(name) == 0) {
        throw duckdb::PermissionException("type %s may not be used in a pushed query", name);
    }
}

void CheckFunction(const duckdb::FunctionExpression &function) {
    const auto &name = function.GetQualifiedName();
    std::string text = duckdb::StringUtil::Lower(name.Name().GetIdentifierName());
    const bool built_in = (name.Catalog().empty() || name.Catalog() == Identifier("system")) &&
                          (name.Schema().empty() || name.Schema() == Identifier("main"));
    if (!built_in || ALLOWED_FUNCTIONS.count(text) == 0) {
        throw duckdb::PermissionException("function %s may not be used in a pushed query", text);
    }
    const bool ordered = function.OrderBy() && !function.OrderBy()->orders.empty();
    if (function.Distinct() || ordered || function.ExportState()) {
        throw duckdb::PermissionException(
            "aggregates with DISTINCT, ORDER BY or EXPORT_STATE may not be used in a pushed query");
    }
}

//! Parses exactly one expression, without a second one or any clause after it.
unique_ptr<ParsedExpression> ParseExpression(duckdb::Parser &parser, const std::string &sql) {
    CheckNesting(sql);
    parser.statements.clear();
    parser.ParseQuery("SELECT " + sql);
    duckdb::SelectNode *select = nullptr;
    if (parser.statements.size() == 1 &&
        parser.statements[0]->type == duckdb::StatementType::SELECT_STATEMENT) {
        auto &node = *parser.statements[0]->Cast<duckdb::SelectStatement>().node;
        const bool plain = node.type == duckdb::QueryNodeType::SELECT_NODE && node.modifiers.empty();
        select = plain && node.cte_map.map.empty() ? &node.Cast<duckdb::SelectNode>() : nullptr;
    }
    const bool expression_only =
        select && select->select_list.size() == 1 && !select->where_clause && !select->having &&
        !select->qualify && !select->sample && select->groups.group_expressions.empty() &&
        (!select->from_table || select->from_table->type == duckdb::TableReferenceType::EMPTY_FROM);
    if (!expression_only) {
        throw duckdb::PermissionException("a pushed query needs one expression, not '%s'", sql);
    }
    auto expression = std::move(select->select_list[0]);
    CheckExpression(*expression);
    return expression;
}

unique_ptr<ParsedExpression> ReadParquet(const std::string &path) {
    duckdb::vector<unique_ptr<ParsedExpression>> arguments;
    arguments.push_back(duckdb::ConstantExpression::String(path));
    return make_uniq<duckdb::FunctionExpression>(Identifier("read_parquet"), std::move(arguments));
}

//! The read_parquet call in a source that MakeSource has built.
duckdb::TableFunctionRef &FileOf(duckdb::TableRef &source) {
    if (source.type != duckdb::TableReferenceType::SUBQUERY) {
        return source.Cast<duckdb::TableFunctionRef>();
    }
    auto &inner = *source.Cast<duckdb::SubqueryRef>().subquery->node;
    return inner.Cast<duckdb::SelectNode>().from_table->Cast<duckdb::TableFunctionRef>();
}

//! (SELECT rawduck_exact(CAST(NULL AS t), c) AS c, … FROM a file whose path is set later)
unique_ptr<duckdb::TableRef> MakeSource(duckdb::Parser &parser, const Request &request) {
    auto file = make_uniq<duckdb::TableFunctionRef>();
    if (request.columns.empty()) {
        return std::move(file);
    }
    auto node = make_uniq<duckdb::SelectNode>();
    node->from_table = std::move(file);
    for (const RequestColumn &column : request.columns) {
        auto typed = ParseExpression(parser, "CAST(NULL AS " + column.type + ")");
        if (typed->GetExpressionClass() != ExpressionClass::CAST) {
            throw duckdb::PermissionException("'%s' is not a type", column.type);
        }
        duckdb::vector<unique_ptr<ParsedExpression>> arguments;
        arguments.push_back(std::move(typed));
        arguments.push_back(make_uniq<duckdb::ColumnRefExpression>(Identifier(column.name)));
        auto exact = make_uniq<duckdb::FunctionExpression>(Identifier(EXACT_COLUMN), std::move(arguments));
        exact->SetAlias(Identifier(column.name));
        node->select_list.push_back(std::move(exact));
    }
    auto statement = make_uniq<duckdb::SelectStatement>();
    statement->node = std::move(node);
    return make_uniq<duckdb::SubqueryRef>(std::move(statement), Identifier("object"));
}

unique_ptr<ParsedExpression> OutputPosition(uint64_t output) {
    return duckdb::ConstantExpression::Integer(static_cast<int64_t>(output) + 1);
}

void AddModifiers(duckdb::SelectNode &node, const Request &request) {
    if (!request.order.empty()) {
        auto order = make_uniq<duckdb::OrderModifier>();
        for (const RequestOrder &key : request.order) {
            order->orders.emplace_back(
                key.descending ? duckdb::OrderType::DESCENDING : duckdb::OrderType::ASCENDING,
                key.nulls_first ? duckdb::OrderByNullType::NULLS_FIRST : duckdb::OrderByNullType::NULLS_LAST,
                OutputPosition(key.output));
        }
        node.modifiers.push_back(std::move(order));
    }
    if (request.limit < static_cast<uint64_t>(INT64_MAX)) {
        auto limit = make_uniq<duckdb::LimitModifier>();
        limit->limit = duckdb::ConstantExpression::Integer(static_cast<int64_t>(request.limit));
        node.modifiers.push_back(std::move(limit));
    }
}

} // namespace

bool IsPushableType(const duckdb::LogicalType &type) {
    const bool collated =
        type.id() == duckdb::LogicalTypeId::VARCHAR && !duckdb::StringType::GetCollation(type).empty();
    if (type.HasAlias() || collated) {
        return false; // an alias or a collation changes what comparisons mean
    }
    std::string name = duckdb::StringUtil::Lower(type.ToString());
    return ALLOWED_TYPES.count(name.substr(0, name.find('('))) != 0;
}

void CheckExpression(const ParsedExpression &expression) {
    switch (expression.GetExpressionClass()) {
    case ExpressionClass::COLUMN_REF:
        if (expression.Cast<duckdb::ColumnRefExpression>().IsQualified()) {
            throw duckdb::PermissionException("a pushed query names its columns without their table");
        }
        break;
    case ExpressionClass::CAST:
        CheckTypeName(expression.Cast<duckdb::CastExpression>().TargetType());
        CheckExpression(expression.Cast<duckdb::CastExpression>().Child());
        return;
    case ExpressionClass::FUNCTION:
        CheckFunction(expression.Cast<duckdb::FunctionExpression>());
        break;
    case ExpressionClass::OPERATOR:
        switch (expression.GetExpressionType()) {
        case ExpressionType::OPERATOR_NOT:
        case ExpressionType::OPERATOR_IS_NULL:
        case ExpressionType::OPERATOR_IS_NOT_NULL:
        case ExpressionType::COMPARE_IN:
        case ExpressionType::COMPARE_NOT_IN:
        case ExpressionType::OPERATOR_COALESCE:
        case ExpressionType::OPERATOR_NULLIF:
            break;
        default:
            throw duckdb::PermissionException("operator %s may not be used in a pushed query",
                                              duckdb::ExpressionTypeToString(expression.GetExpressionType()));
        }
        break;
    case ExpressionClass::BETWEEN:
    case ExpressionClass::CASE:
    case ExpressionClass::COMPARISON:
    case ExpressionClass::CONJUNCTION:
    case ExpressionClass::CONSTANT:
        break;
    default:
        throw duckdb::PermissionException("'%s' may not be used in a pushed query", expression.ToString());
    }
    duckdb::ParsedExpressionIterator::EnumerateChildren(
        expression, [](const ParsedExpression &child) { CheckExpression(child); });
}

unique_ptr<ParsedExpression> ParseRequestExpression(const std::string &sql) {
    auto parser = duckdb::Parser::GetBuiltinParser();
    return ParseExpression(parser, sql);
}

PushedStatement::PushedStatement(const Request &request) : statement_(make_uniq<duckdb::SelectStatement>()) {
    auto parser = duckdb::Parser::GetBuiltinParser();
    auto node = make_uniq<duckdb::SelectNode>();
    node->from_table = MakeSource(parser, request);
    if (!request.filter.empty()) {
        node->where_clause = ParseExpression(parser, request.filter);
    }
    duckdb::GroupingSet groups;
    for (size_t i = 0; i < request.outputs.size(); i++) {
        node->select_list.push_back(ParseExpression(parser, request.outputs[i]));
        if (i < request.group_count) {
            groups.insert(duckdb::ProjectionIndex(i));
            node->groups.group_expressions.push_back(OutputPosition(i));
        }
    }
    if (!groups.empty()) {
        node->groups.grouping_sets.push_back(std::move(groups));
    }
    AddModifiers(*node, request);
    FileOf(*node->from_table).function = ReadParquet("");
    statement_->node = std::move(node);
}

unique_ptr<duckdb::SelectStatement> PushedStatement::ForFile(const std::string &path) const {
    auto statement =
        duckdb::unique_ptr_cast<duckdb::SQLStatement, duckdb::SelectStatement>(statement_->Copy());
    FileOf(*statement->node->Cast<duckdb::SelectNode>().from_table).function = ReadParquet(path);
    return statement;
}

} // namespace rawduck_ceph
