#include "ceph/pushdown/decision/object_estimate.hpp"

#include "duckdb/common/multi_file/multi_file_states.hpp"
#include "duckdb/planner/expression/bound_columnref_expression.hpp"
#include "duckdb/planner/expression/bound_constant_expression.hpp"
#include "duckdb/planner/expression/bound_function_expression.hpp"
#include "duckdb/planner/expression_iterator.hpp"
#include "duckdb/storage/statistics/numeric_stats.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_map>

namespace rawduck_ceph {

namespace {

using duckdb::Expression;
using duckdb::ExpressionType;

constexpr uint64_t FOOTER_BYTES_MAX = 8 * 1024 * 1024;
constexpr size_t SUMMARIES_MAX = 10000;

//! Of a trial of the link: more than what passes a limited one at once (a shaper's burst).
constexpr uint64_t TRIAL_BYTES = 256 * 1024;
constexpr uint64_t TRIAL_BASE_BYTES = 4096;
//! What looks slower than 250 MB/s is tried once more: something else may have been in the way.
constexpr double TRIAL_SLOW_S_PER_BYTE = 4e-9;

// Guesses, for what metadata cannot tell.
constexpr double OF_EQUALITY = 0.1;
constexpr double OF_ORDER = 0.5; //!< between two columns, or of texts
constexpr double OF_PATTERN = 0.1;
constexpr double OF_ANYTHING = 0.5;

struct Summaries {
    std::mutex mutex;
    //! By path and version.
    std::unordered_map<std::string, std::shared_ptr<const ParquetSummary>> known;
};

Summaries &TheSummaries() {
    static auto &summaries = *new Summaries;
    return summaries;
}

//! Null where the object is no Parquet file that we understand.
//! `tail`: as much of the object's end as is known already.
std::shared_ptr<const ParquetSummary> Fetch(const CallTarget &target, const ObjectStatus &status,
                                            std::string tail) {
    auto read = [&](uint64_t length) {
        tail.resize(std::min(length, status.size));
        target.pool->Read(target.object, status.version, &tail[0], tail.size(), status.size - tail.size());
    };
    if (tail.empty()) {
        read(ObjectTails::BYTES_MAX);
    }
    ParquetSummary summary;
    while (const size_t wanted = SummarizeParquet(tail.data(), tail.size(), summary)) {
        if (wanted > status.size || wanted > FOOTER_BYTES_MAX) {
            return nullptr;
        }
        read(wanted);
    }
    return std::make_shared<const ParquetSummary>(std::move(summary));
}

std::shared_ptr<const ParquetSummary> SummaryOf(const CallTarget &target, const ObjectStatus &status,
                                                std::string tail) {
    const std::string key = target.path + "@" + std::to_string(status.version);
    Summaries &summaries = TheSummaries();
    {
        std::lock_guard<std::mutex> lock(summaries.mutex);
        auto found = summaries.known.find(key);
        if (found != summaries.known.end()) {
            return found->second;
        }
    }
    auto summary = Fetch(target, status, std::move(tail));
    std::lock_guard<std::mutex> lock(summaries.mutex);
    if (summaries.known.size() >= SUMMARIES_MAX) {
        summaries.known.clear();
    }
    summaries.known[key] = summary;
    return summary;
}

//! A place on the axis of a type's values. False: its values have none.
bool Place(const duckdb::Value &value, double &place) {
    if (value.IsNull()) {
        return false;
    }
    switch (value.type().InternalType()) {
    case duckdb::PhysicalType::INT8:
        place = value.GetValueUnsafe<int8_t>();
        return true;
    case duckdb::PhysicalType::INT16:
        place = value.GetValueUnsafe<int16_t>();
        return true;
    case duckdb::PhysicalType::INT32:
        place = value.GetValueUnsafe<int32_t>();
        return true;
    case duckdb::PhysicalType::INT64:
        place = static_cast<double>(value.GetValueUnsafe<int64_t>());
        return true;
    case duckdb::PhysicalType::FLOAT:
        place = static_cast<double>(value.GetValueUnsafe<float>());
        return true;
    case duckdb::PhysicalType::DOUBLE:
        place = value.GetValueUnsafe<double>();
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

bool IsOrder(ExpressionType type) {
    return type == ExpressionType::COMPARE_LESSTHAN || type == ExpressionType::COMPARE_LESSTHANOREQUALTO ||
           type == ExpressionType::COMPARE_GREATERTHAN ||
           type == ExpressionType::COMPARE_GREATERTHANOREQUALTO;
}

void Flatten(const Expression &filter, std::vector<const Expression *> &parts) {
    if (filter.GetExpressionType() != ExpressionType::CONJUNCTION_AND) {
        parts.push_back(&filter);
        return;
    }
    for (const Expression *child : Children(filter)) {
        Flatten(*child, parts);
    }
}

} // namespace

//! Of a column's values: all of them, and those that are let through.
struct ObjectEstimate::Range {
    double lowest = 0, highest = 0, low = 0, high = 0;

    double Share() const {
        const double all = highest - lowest;
        return all > 0 ? std::clamp((high - low) / all, 0.0, 1.0) : 1;
    }
};

ObjectEstimate::ObjectEstimate(duckdb::ClientContext &context, const duckdb::LogicalGet &get,
                               CallTarget first)
    : context_(context), get_(get), first_(std::move(first)) {
    ObjectStatus status;
    std::string tail; // usually known, because DuckDB has just opened the object to bind the query
    if (first_.pool->tails.Find(first_.object, status, tail) || first_.pool->TryStat(first_.object, status)) {
        object_bytes_ = status.size;
        object_version_ = status.version;
        summary_ = SummaryOf(first_, status, std::move(tail));
    }
}

void ObjectEstimate::TryLink() const {
    const uint64_t bytes = std::min(TRIAL_BYTES, object_bytes_);
    if (bytes <= TRIAL_BASE_BYTES) {
        return;
    }
    std::string data(bytes, '\0');
    auto read = [&](uint64_t length) {
        const auto begin = std::chrono::steady_clock::now();
        first_.pool->Read(first_.object, object_version_, &data[0], length, 0);
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    double s_per_byte = read(bytes) / static_cast<double>(bytes);
    if (s_per_byte > TRIAL_SLOW_S_PER_BYTE) {
        // What a small read takes is the way to the OSD and back, which reads side by side share.
        const double base = read(TRIAL_BASE_BYTES);
        const double taken = read(bytes);
        // A small read that was held up by something else says nothing.
        s_per_byte = (taken - std::min(base, taken / 2)) / static_cast<double>(bytes - TRIAL_BASE_BYTES);
    }
    first_.pool->Stats().reads.Suppose(s_per_byte);
}

uint64_t ObjectEstimate::ColumnBytes(const Request &request) const {
    uint64_t bytes = 0;
    for (const RequestColumn &column : request.columns) {
        auto found = summary_->columns.find(column.name);
        bytes += found == summary_->columns.end() ? 0 : found->second.stored_bytes;
    }
    return bytes;
}

bool ObjectEstimate::Column(const Expression &expression, duckdb::idx_t &column) const {
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

uint64_t ObjectEstimate::Distinct(duckdb::idx_t column) const {
    auto found = summary_->columns.find(get_.names[column].GetIdentifierName());
    return found == summary_->columns.end() ? 0 : found->second.distinct_values;
}

bool ObjectEstimate::Limits(duckdb::idx_t column, Range &range) const {
    auto *data = dynamic_cast<const duckdb::MultiFileBindData *>(get_.bind_data.get());
    if (!data || !data->initial_reader) {
        return false;
    }
    auto statistics = data->initial_reader->GetStatistics(context_, get_.names[column]);
    if (!statistics || statistics->GetType() != get_.returned_types[column] ||
        statistics->GetStatsType() != duckdb::StatisticsType::NUMERIC_STATS ||
        !duckdb::NumericStats::HasMinMax(*statistics)) {
        return false;
    }
    const bool placed = Place(duckdb::NumericStats::Min(*statistics), range.lowest) &&
                        Place(duckdb::NumericStats::Max(*statistics), range.highest);
    range.low = range.lowest;
    range.high = range.highest;
    return placed;
}

bool ObjectEstimate::Narrow(const Expression &filter, std::map<duckdb::idx_t, Range> &ranges) const {
    const auto parts = Children(filter);
    const bool between = filter.GetExpressionType() == ExpressionType::COMPARE_BETWEEN && parts.size() == 3;
    if (!between && !(IsOrder(filter.GetExpressionType()) && parts.size() == 2)) {
        return false;
    }
    duckdb::idx_t column;
    const bool turned = !between && !Column(*parts[0], column);
    if (!Column(*parts[turned ? 1 : 0], column)) {
        return false;
    }
    double places[2] = {0, 0};
    for (size_t i = 0; i + 1 < parts.size(); i++) {
        const duckdb::Value *value = Constant(*parts[turned ? 0 : i + 1]);
        if (!value || value->type() != get_.returned_types[column] || !Place(*value, places[i])) {
            return false;
        }
    }
    if (ranges.count(column) == 0) {
        Range all;
        if (!Limits(column, all)) {
            return false;
        }
        ranges[column] = all;
    }
    Range &range = ranges[column];
    const bool greater = filter.GetExpressionType() == ExpressionType::COMPARE_GREATERTHAN ||
                         filter.GetExpressionType() == ExpressionType::COMPARE_GREATERTHANOREQUALTO;
    if (between || greater != turned) {
        range.low = std::max(range.low, places[0]);
    }
    if (between || greater == turned) {
        range.high = std::min(range.high, places[between ? 1 : 0]);
    }
    return true;
}

double ObjectEstimate::One(const Expression &filter) const {
    const auto parts = Children(filter);
    duckdb::idx_t column;
    const bool of_column = !parts.empty() && (Column(*parts[0], column) || Column(*parts.back(), column));
    const double equality =
        of_column && Distinct(column) > 0 ? 1.0 / static_cast<double>(Distinct(column)) : OF_EQUALITY;
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
        return OF_EQUALITY;
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
    if (IsOrder(type)) {
        return OF_ORDER;
    }
    if (filter.GetExpressionClass() != duckdb::ExpressionClass::BOUND_FUNCTION) {
        return OF_ANYTHING;
    }
    const std::string name =
        filter.Cast<duckdb::BoundFunctionExpression>().Function().GetName().GetIdentifierName();
    if (name == "!~~" || name == "!~~*") {
        return 1 - OF_PATTERN;
    }
    const bool pattern = name == "~~" || name == "~~*" || name == "contains" || name == "prefix" ||
                         name == "suffix" || name == "starts_with" || name == "ends_with";
    return pattern ? OF_PATTERN : OF_ANYTHING;
}

double ObjectEstimate::Selectivity(const std::vector<const Expression *> &filters) const {
    std::vector<const Expression *> parts;
    for (const Expression *filter : filters) {
        Flatten(*filter, parts);
    }
    std::map<duckdb::idx_t, Range> ranges;
    double through = 1;
    for (const Expression *part : parts) {
        through *= Narrow(*part, ranges) ? 1 : One(*part);
    }
    for (const auto &entry : ranges) {
        through *= entry.second.Share();
    }
    return through;
}

bool ObjectEstimate::Groups(const std::vector<const Expression *> &by, uint64_t rows,
                            uint64_t &groups) const {
    // A writer that counts distinct values of any column has none for those that have too many.
    const bool counted = std::any_of(summary_->columns.begin(), summary_->columns.end(),
                                     [](const auto &column) { return column.second.distinct_values > 0; });
    groups = 1;
    for (const Expression *expression : by) {
        duckdb::idx_t column;
        if (!counted || !Column(*expression, column)) {
            return false;
        }
        const uint64_t distinct = Distinct(column);
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
    if (!object.Known()) {
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
        estimate.rows_known = object.Groups(pointers(query.groups), rows, rows);
    } else {
        estimate.rows_known = true;
        rows = std::min(rows, query.request.limit);
    }
    estimate.rows_out = rows * objects;
    return estimate;
}

} // namespace rawduck_ceph
