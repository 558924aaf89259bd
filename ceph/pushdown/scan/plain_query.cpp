#include "ceph/pushdown/scan/plain_query.hpp"

#include "duckdb/common/multi_file/multi_file_list.hpp"
#include "duckdb/common/multi_file/multi_file_states.hpp"
#include "duckdb/planner/expression/bound_cast_expression.hpp"
#include "duckdb/planner/expression/bound_columnref_expression.hpp"
#include "duckdb/planner/filter/expression_filter.hpp"
#include "duckdb/planner/operator/logical_aggregate.hpp"
#include "duckdb/planner/operator/logical_filter.hpp"
#include "duckdb/planner/operator/logical_projection.hpp"

namespace rawduck_ceph {

namespace {

using duckdb::Expression;
using duckdb::make_uniq;
using duckdb::TableIndex;
using duckdb::unique_ptr;

using Expressions = duckdb::vector<unique_ptr<Expression>>;

Expressions CopyAll(const Expressions &expressions) {
    Expressions copies;
    for (const auto &expression : expressions) {
        copies.push_back(expression->Copy());
    }
    return copies;
}

//! The tables of a plan are the scan and these.
enum class Part { INPUTS = 1, OUTPUTS, GROUPS, AGGREGATES };
TableIndex TableOf(const duckdb::LogicalGet &scan, Part part) {
    return TableIndex(scan.table_index.index + static_cast<duckdb::idx_t>(part));
}

//! References to the columns of a table that have these expressions.
Expressions ReferencesTo(TableIndex table, const Expressions &columns) {
    Expressions references;
    for (size_t i = 0; i < columns.size(); i++) {
        references.push_back(make_uniq<duckdb::BoundColumnRefExpression>(
            columns[i]->GetReturnType(), duckdb::ColumnBinding(table, duckdb::ProjectionIndex(i))));
    }
    return references;
}

unique_ptr<duckdb::LogicalOperator> Project(TableIndex table, Expressions expressions,
                                            unique_ptr<duckdb::LogicalOperator> plan) {
    auto projection = make_uniq<duckdb::LogicalProjection>(table, std::move(expressions));
    projection->children.push_back(std::move(plan));
    return std::move(projection);
}

void SetFile(duckdb::LogicalGet &scan, const std::string &path) {
    scan.bind_data->Cast<duckdb::MultiFileBindData>().file_list =
        duckdb::make_shared_ptr<duckdb::SimpleMultiFileList>(
            duckdb::vector<duckdb::OpenFileInfo>{duckdb::OpenFileInfo(path)});
}

} // namespace

PlainQuery::PlainQuery(const duckdb::LogicalGet &get) : scan_(ScanOf(get)) {
    SetFile(*scan_, ""); // each plan copies the list
}

unique_ptr<Expression> PlainQuery::AddInput(unique_ptr<Expression> input) {
    const duckdb::ColumnBinding binding(TableOf(*scan_, Part::INPUTS),
                                        duckdb::ProjectionIndex(inputs_.size()));
    auto reference = make_uniq<duckdb::BoundColumnRefExpression>(input->GetReturnType(), binding);
    inputs_.push_back(std::move(input));
    return std::move(reference);
}

unique_ptr<duckdb::LogicalGet> PlainQuery::ScanOf(const duckdb::LogicalGet &get) const {
    auto scan = make_uniq<duckdb::LogicalGet>(get.table_index, get.function, get.bind_data->Copy(),
                                              get.returned_types, get.names, get.virtual_columns);
    auto columns = get.GetColumnIds();
    scan->SetColumnIds(std::move(columns));
    scan->projection_ids = get.projection_ids;
    scan->table_filters = std::move(*get.table_filters.Copy());
    return scan;
}

Expressions PlainQuery::Aggregate(unique_ptr<duckdb::LogicalOperator> &plan) const {
    const TableIndex groups = TableOf(*scan_, Part::GROUPS), aggregates = TableOf(*scan_, Part::AGGREGATES);
    auto aggregate = make_uniq<duckdb::LogicalAggregate>(groups, aggregates, CopyAll(partials));
    for (size_t i = 0; i + partials.size() < outputs.size(); i++) {
        aggregate->groups.push_back(outputs[i]->Copy());
    }
    aggregate->group_stats.resize(aggregate->groups.size());
    aggregate->distinct_validity = duckdb::TupleDataValidityType::CAN_HAVE_NULL_VALUES;
    aggregate->children.push_back(std::move(plan));
    Expressions columns = ReferencesTo(groups, aggregate->groups);
    for (auto &reference : ReferencesTo(aggregates, aggregate->expressions)) {
        columns.push_back(std::move(reference));
    }
    plan = std::move(aggregate);
    return columns;
}

unique_ptr<duckdb::LogicalOperator>
PlainQuery::PlanFor(duckdb::ClientContext &context, const std::string &path,
                    const duckdb::vector<duckdb::LogicalType> &types,
                    duckdb::optional_ptr<const duckdb::TableFilterSet> join_filters) const {
    auto scan = ScanOf(*scan_);
    if (join_filters) {
        // After the scan's own filters, as reading has them: which rows are left decides about errors, too.
        for (const auto &entry : *join_filters) {
            scan->table_filters.PushFilter(
                entry.GetIndex(),
                duckdb::ExpressionFilter::GetExpressionFilter(entry.Filter(), "reading").Copy());
        }
    }
    SetFile(*scan, path);
    unique_ptr<duckdb::LogicalOperator> plan = std::move(scan);
    for (const Expressions &conditions : filters) {
        auto filter = make_uniq<duckdb::LogicalFilter>();
        filter->expressions = CopyAll(conditions);
        filter->children.push_back(std::move(plan));
        plan = std::move(filter);
    }
    if (!inputs_.empty()) { // a count of all rows has none
        plan = Project(TableOf(*scan_, Part::INPUTS), CopyAll(inputs_), std::move(plan));
    }
    Expressions columns = is_aggregated ? Aggregate(plan) : CopyAll(outputs);
    for (size_t i = 0; i < columns.size(); i++) {
        columns[i] = duckdb::BoundCastExpression::AddCastToType(context, std::move(columns[i]), types[i]);
    }
    plan = Project(TableOf(*scan_, Part::OUTPUTS), std::move(columns), std::move(plan));
    plan->ResolveOperatorTypes();
    return plan;
}

} // namespace rawduck_ceph
