#include "ceph/pushdown/decision/object_estimate.hpp"

#include "ceph/pushdown/proof/object_columns.hpp"

#include "duckdb/common/multi_file/multi_file_states.hpp"
#include "duckdb/planner/expression/bound_columnref_expression.hpp"
#include "duckdb/planner/expression/bound_constant_expression.hpp"
#include "duckdb/planner/expression/bound_function_expression.hpp"
#include "duckdb/planner/expression_iterator.hpp"
#include "duckdb/storage/statistics/numeric_stats.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace rawduck_ceph {

namespace {

using duckdb::Expression;
using duckdb::ExpressionType;

// Assumed shares of the rows, where metadata does not tell.
constexpr double EQUALITY_SELECTIVITY = 0.1;
constexpr double RANGE_SELECTIVITY = 0.5; //!< of two columns, or of texts
constexpr double PATTERN_SELECTIVITY = 0.1;
constexpr double OTHER_SELECTIVITY = 0.5;

//! For types whose values can be interpolated. False for the others.
bool ToNumber(const duckdb::Value &value, double &number) {
    if (value.IsNull()) {
        return false;
    }
    switch (value.type().InternalType()) {
    case duckdb::PhysicalType::INT8:
        number = value.GetValueUnsafe<int8_t>();
        return true;
    case duckdb::PhysicalType::INT16:
        number = value.GetValueUnsafe<int16_t>();
        return true;
    case duckdb::PhysicalType::INT32:
        number = value.GetValueUnsafe<int32_t>();
        return true;
    case duckdb::PhysicalType::INT64:
        number = static_cast<double>(value.GetValueUnsafe<int64_t>());
        return true;
    case duckdb::PhysicalType::FLOAT:
        number = static_cast<double>(value.GetValueUnsafe<float>());
        return true;
    case duckdb::PhysicalType::DOUBLE:
        number = value.GetValueUnsafe<double>();
        return true;
    default:
        return false;
    }
}

std::vector<const Expression *> Children(const Expression &expression) {
    std::vector<const Expression *> children;
    duckdb::ExpressionIterator::EnumerateChildren(
        expression, [&](const Expression &child) { children.push_back(&child); });
    return children;
}

const duckdb::Value *Constant(const Expression &expression) {
    return expression.GetExpressionClass() == duckdb::ExpressionClass::BOUND_CONSTANT
               ? &expression.Cast<duckdb::BoundConstantExpression>().GetValue()
               : nullptr;
}

bool IsInequality(ExpressionType type) {
    return type == ExpressionType::COMPARE_LESSTHAN || type == ExpressionType::COMPARE_LESSTHANOREQUALTO ||
           type == ExpressionType::COMPARE_GREATERTHAN ||
           type == ExpressionType::COMPARE_GREATERTHANOREQUALTO;
}

void SplitConjunction(const Expression &filter, std::vector<const Expression *> &parts) {
    if (filter.GetExpressionType() != ExpressionType::CONJUNCTION_AND) {
        parts.push_back(&filter);
        return;
    }
    for (const Expression *child : Children(filter)) {
        SplitConjunction(*child, parts);
    }
}

} // namespace

struct ObjectEstimate::Range {
    double lowest = 0, highest = 0; //!< of the column
    double low = 0, high = 0;       //!< what the filters let through

    double Share() const {
        const double all = highest - lowest;
        return all > 0 && std::isfinite(all) ? std::clamp((high - low) / all, 0.0, 1.0) : 1;
    }
};

ObjectEstimate::ObjectEstimate(duckdb::ClientContext &context, const duckdb::LogicalGet &get,
                               const ObjectMetadata &metadata)
    : context_(context), get_(get), object_bytes_(metadata.bytes), summary_(metadata.summary) {}

uint64_t ObjectEstimate::ColumnBytes(const Request &request) const {
    uint64_t bytes = 0;
    for (const RequestColumn &column : request.columns) {
        auto found = summary_->columns.find(column.name);
        bytes += found == summary_->columns.end() ? 0 : found->second.stored_bytes;
    }
    return bytes;
}

bool ObjectEstimate::FindColumn(const Expression &expression, duckdb::idx_t &column) const {
    if (expression.GetExpressionClass() != duckdb::ExpressionClass::BOUND_COLUMN_REF) {
        return false;
    }
    const auto binding = expression.Cast<duckdb::BoundColumnRefExpression>().Binding();
    if (binding.table_index != get_.table_index) {
        return false;
    }
    const auto &index = get_.GetColumnIndex(binding);
    column = index.IsVirtualColumn() ? 0 : index.GetPrimaryIndex();
    return !index.IsVirtualColumn() && !index.HasChildren();
}

uint64_t ObjectEstimate::DistinctValues(duckdb::idx_t column) const {
    auto found = summary_->columns.find(NameInObjects(get_, column).GetIdentifierName());
    return found == summary_->columns.end() ? 0 : found->second.distinct_values;
}

bool ObjectEstimate::ColumnRange(duckdb::idx_t column, Range &range) const {
    auto *data = dynamic_cast<const duckdb::MultiFileBindData *>(get_.bind_data.get());
    const auto name = NameInObjects(get_, column);
    if (!data || !data->initial_reader || name.empty()) {
        return false;
    }
    auto statistics = data->initial_reader->GetStatistics(context_, name);
    if (!statistics || statistics->GetType() != get_.returned_types[column] ||
        statistics->GetStatsType() != duckdb::StatisticsType::NUMERIC_STATS ||
        !duckdb::NumericStats::HasMinMax(*statistics)) {
        return false;
    }
    const bool numeric = ToNumber(duckdb::NumericStats::Min(*statistics), range.lowest) &&
                         ToNumber(duckdb::NumericStats::Max(*statistics), range.highest);
    range.low = range.lowest;
    range.high = range.highest;
    return numeric;
}

bool ObjectEstimate::NarrowRange(const Expression &filter, std::map<duckdb::idx_t, Range> &ranges) const {
    const auto parts = Children(filter);
    const bool between = filter.GetExpressionType() == ExpressionType::COMPARE_BETWEEN && parts.size() == 3;
    if (!between && !(IsInequality(filter.GetExpressionType()) && parts.size() == 2)) {
        return false;
    }
    duckdb::idx_t column;
    const bool reversed = !between && !FindColumn(*parts[0], column);
    if (!FindColumn(*parts[reversed ? 1 : 0], column)) {
        return false;
    }
    double bounds[2] = {0, 0};
    for (size_t i = 0; i + 1 < parts.size(); i++) {
        const duckdb::Value *value = Constant(*parts[reversed ? 0 : i + 1]);
        if (!value || value->type() != get_.returned_types[column] || !ToNumber(*value, bounds[i])) {
            return false;
        }
    }
    if (ranges.count(column) == 0) {
        Range all;
        if (!ColumnRange(column, all)) {
            return false;
        }
        ranges[column] = all;
    }
    Range &range = ranges[column];
    const bool greater = filter.GetExpressionType() == ExpressionType::COMPARE_GREATERTHAN ||
                         filter.GetExpressionType() == ExpressionType::COMPARE_GREATERTHANOREQUALTO;
    if (between || greater != reversed) {
        range.low = std::max(range.low, bounds[0]);
    }
    if (between || greater == reversed) {
        range.high = std::min(range.high, bounds[between ? 1 : 0]);
    }
    return true;
}

double ObjectEstimate::ConditionSelectivity(const Expression &filter) const {
    const auto parts = Children(filter);
    duckdb::idx_t column;
    const bool of_column =
        !parts.empty() && (FindColumn(*parts[0], column) || FindColumn(*parts.back(), column));
    const double equality = of_column && DistinctValues(column) > 0
                                ? 1.0 / static_cast<double>(DistinctValues(column))
                                : EQUALITY_SELECTIVITY;
    const ExpressionType type = filter.GetExpressionType();
    double through = 1;
    switch (type) {
    case ExpressionType::CONJUNCTION_OR:
        for (const Expression *part : parts) {
            through *= 1 - Selectivity({part});
        }
        return 1 - through;
    case ExpressionType::OPERATOR_NOT:
        return 1 - Selectivity({parts[0]});
    case ExpressionType::OPERATOR_IS_NOT_NULL:
        return 1;
    case ExpressionType::OPERATOR_IS_NULL:
        return EQUALITY_SELECTIVITY;
    case ExpressionType::COMPARE_EQUAL:
        return equality;
    case ExpressionType::COMPARE_NOTEQUAL:
        return 1 - equality;
    case ExpressionType::COMPARE_IN:
        return std::min(1.0, equality * static_cast<double>(parts.size() - 1));
    case ExpressionType::COMPARE_NOT_IN:
        return 1 - std::min(1.0, equality * static_cast<double>(parts.size() - 1));
    default:
        break;
    }
    if (IsInequality(type)) {
        return RANGE_SELECTIVITY;
    }
    if (filter.GetExpressionClass() != duckdb::ExpressionClass::BOUND_FUNCTION) {
        return OTHER_SELECTIVITY;
    }
    const std::string name =
        filter.Cast<duckdb::BoundFunctionExpression>().Function().GetName().GetIdentifierName();
    if (name == "!~~" || name == "!~~*") {
        return 1 - PATTERN_SELECTIVITY;
    }
    const bool pattern = name == "~~" || name == "~~*" || name == "contains" || name == "prefix" ||
                         name == "suffix" || name == "starts_with" || name == "ends_with";
    return pattern ? PATTERN_SELECTIVITY : OTHER_SELECTIVITY;
}

double ObjectEstimate::Selectivity(const std::vector<const Expression *> &filters) const {
    std::vector<const Expression *> parts;
    for (const Expression *filter : filters) {
        SplitConjunction(*filter, parts);
    }
    std::map<duckdb::idx_t, Range> ranges;
    double through = 1;
    for (const Expression *part : parts) {
        through *= NarrowRange(*part, ranges) ? 1 : ConditionSelectivity(*part);
    }
    for (const auto &entry : ranges) {
        through *= entry.second.Share();
    }
    return through;
}

bool ObjectEstimate::EstimateGroups(const std::vector<const Expression *> &by, uint64_t rows,
                                    uint64_t &groups) const {
    // A writer that counts distinct values of any column has none for those that have too many.
    const bool counted = std::any_of(summary_->columns.begin(), summary_->columns.end(),
                                     [](const auto &column) { return column.second.distinct_values > 0; });
    groups = 1;
    for (const Expression *expression : by) {
        duckdb::idx_t column;
        if (!counted || !FindColumn(*expression, column)) {
            return false;
        }
        const uint64_t distinct = DistinctValues(column);
        groups = distinct == 0 || groups > rows / distinct ? rows : groups * distinct;
    }
    groups = std::min(groups, rows);
    return true;
}

ScanEstimate EstimateScan(const ObjectEstimate &object, size_t objects, const PushedQuery &query,
                          uint64_t rows_out, bool rows_known) {
    ScanEstimate estimate;
    estimate.objects = objects;
    estimate.rows_out = rows_out;
    estimate.rows_known = rows_known;
    for (const duckdb::LogicalType &type : query.types) {
        estimate.row_bytes += ValueBytes(type);
    }
    if (!object.HasSummary()) {
        estimate.column_bytes = object.ObjectBytes() * objects;
        return estimate;
    }
    auto pointers = [](const std::vector<duckdb::unique_ptr<Expression>> &expressions) {
        std::vector<const Expression *> result;
        for (const auto &expression : expressions) {
            result.push_back(expression.get());
        }
        return result;
    };
    estimate.column_bytes = object.ColumnBytes(query.request) * objects;
    auto rows = static_cast<uint64_t>(static_cast<double>(object.Rows()) *
                                      object.Selectivity(pointers(query.filters)));
    if (query.request.aggregate) {
        estimate.rows_known = object.EstimateGroups(pointers(query.groups), rows, rows);
    } else {
        estimate.rows_known = true;
        rows = std::min(rows, query.request.limit);
    }
    estimate.rows_out = rows * objects;
    return estimate;
}

} // namespace rawduck_ceph
