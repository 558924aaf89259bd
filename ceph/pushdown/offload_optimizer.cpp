#include "ceph/pushdown/offload_optimizer.hpp"

#include "ceph/files/query_interrupt.hpp"
#include "ceph/pushdown/offload_planner.hpp"
#include "ceph/pushdown/plan/parquet_scan.hpp"
#include "ceph/pushdown/plan/partial_aggregate.hpp"
#include "ceph/pushdown/proof/built_in_functions.hpp"
#include "ceph/pushdown/proof/neutral_settings.hpp"
#include "ceph/pushdown/proof/object_columns.hpp"
#include "ceph/pushdown/pruning/object_pruning.hpp"
#include "ceph/query/statement.hpp"
#include "ceph/rados/connection/rados_error.hpp"
#include "ceph/settings/rados_settings.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/settings.hpp"
#include "duckdb/optimizer/optimizer.hpp"
#include "duckdb/optimizer/optimizer_extension.hpp"
#include "duckdb/planner/binder.hpp"
#include "duckdb/planner/operator/logical_limit.hpp"
#include "duckdb/planner/operator/logical_top_n.hpp"

#include <algorithm>

namespace rawduck_ceph {

namespace {

using duckdb::BoundAggregateExpression;
using duckdb::Expression;
using duckdb::LogicalAggregate;
using duckdb::LogicalGet;
using duckdb::LogicalOperator;
using duckdb::LogicalOperatorType;
using duckdb::LogicalType;
using duckdb::make_uniq;
using duckdb::unique_ptr;

//! Sorting more first rows than this in every object is not worth it.
constexpr uint64_t FIRST_ROWS_MAX = 100000;

//! Whether nothing depends on the order of the rows of the child at `position`. `above`: of the operator's own.
bool IsAnyOrderBelow(const LogicalOperator &op, size_t position, bool above) {
    switch (op.type) {
    case LogicalOperatorType::LOGICAL_AGGREGATE_AND_GROUP_BY:
        return std::all_of(op.expressions.begin(), op.expressions.end(), [](const auto &expression) {
            return expression->template Cast<BoundAggregateExpression>().Function().GetOrderDependent() ==
                   duckdb::AggregateOrderDependent::NOT_ORDER_DEPENDENT;
        });
    case LogicalOperatorType::LOGICAL_COMPARISON_JOIN:
        return above || position == 1; // the rows of the right side go into a hash table
    case LogicalOperatorType::LOGICAL_PROJECTION:
    case LogicalOperatorType::LOGICAL_FILTER:
        return above;
    default:
        return false;
    }
}

//! Walks a plan from the top down and replaces what is pushed. An operator is tried before the scan below it:
//! when the aggregate is not pushed, perhaps its filters are.
class OffloadRewriter {
  public:
    explicit OffloadRewriter(duckdb::OptimizerExtensionInput &input)
        : context_(input.context), binder_(input.optimizer.binder), planner_(input.context),
          keeps_order_(duckdb::Settings::Get<duckdb::PreserveInsertionOrderSetting>(input.context)),
          any_order_(!keeps_order_) {}

    void Rewrite(unique_ptr<LogicalOperator> &op) {
        if (planner_.Mode() == OFFLOAD_NEVER) {
            return;
        }
        bool finished = false;
        const bool only_filters = planner_.Mode() == OFFLOAD_FILTERS;
        switch (op->type) {
        case LogicalOperatorType::LOGICAL_AGGREGATE_AND_GROUP_BY:
            finished = !only_filters && TryPush(op, op->children[0], &OffloadRewriter::PushAggregate);
            break;
        case LogicalOperatorType::LOGICAL_TOP_N:
            finished = !only_filters && TryPush(op, op->children[0], &OffloadRewriter::PushTopN);
            break;
        case LogicalOperatorType::LOGICAL_LIMIT:
            finished = !only_filters && TryPush(op, op->children[0], &OffloadRewriter::PushLimit);
            break;
        case LogicalOperatorType::LOGICAL_FILTER:
        case LogicalOperatorType::LOGICAL_GET:
            finished = TryPush(op, op, &OffloadRewriter::PushScan);
            break;
        default:
            break;
        }
        if (finished) {
            return;
        }
        const bool above = any_order_;
        for (size_t i = 0; i < op->children.size(); i++) {
            any_order_ = !keeps_order_ || IsAnyOrderBelow(*op, i, above);
            Rewrite(op->children[i]);
        }
        any_order_ = above;
    }

  private:
    //! One operator over one scan.
    struct Attempt {
        unique_ptr<LogicalOperator> &op;
        ScanChain chain;
        std::vector<CallTarget> targets;
    };
    //! Returns true when the scan is settled, pushed or not; false to try what is below the operator.
    using Push = bool (OffloadRewriter::*)(Attempt &attempt);

    //! Calls `push` when there is a scan of rados:// objects at or below `below`.
    bool TryPush(unique_ptr<LogicalOperator> &op, unique_ptr<LogicalOperator> &below, Push push) {
        Attempt attempt{op, ScanChain(below), {}};
        if (!attempt.chain.get) {
            return false;
        }
        std::vector<std::string> paths;
        try {
            paths = RadosParquetPaths(*attempt.chain.get);
            if (paths.empty()) {
                return false;
            }
            attempt.targets = TargetsOf(context_, paths);
            return (this->*push)(attempt);
        } catch (const NotPushable &reason) {
            // Other attempts at the same scan follow, except after the one at the scan alone.
            if (push == &OffloadRewriter::PushScan) {
                LogReading(paths, reason.why);
                ExplainReading(*attempt.chain.get, reason.why);
            }
            return false;
        } catch (const duckdb::InterruptException &) {
            throw;
        } catch (const Error &error) {
            if (error.Code() == ErrorCode::INTERRUPTED) {
                throw duckdb::InterruptException(error.what());
            }
            LogReading(paths, error.what());
            return false;
        } catch (const std::exception &error) {
            // The plan is unchanged, and reading reports the error itself if it is one.
            LogReading(paths, duckdb::ErrorData(error).RawMessage());
            return false;
        }
    }

    static void LogReading(const std::vector<std::string> &paths, const std::string &why) {
        LogScan({paths.empty() ? "" : paths.front(), paths.size(), false, "", why});
    }

    PushedQuery StartQuery(Attempt &attempt) {
        PushedQuery query(context_, *attempt.chain.get);
        for (auto *projection : attempt.chain.projections) {
            query.AddProjection(*projection);
        }
        const auto &filters = attempt.chain.filters;
        // A filter may have no condition and only leave out columns.
        if (std::all_of(filters.begin(), filters.end(),
                        [](const auto *filter) { return filter->expressions.empty(); })) {
            query.AddOptionalFilters();
        }
        for (auto filter = filters.rbegin(); filter != filters.rend(); ++filter) {
            query.AddFilter(**filter);
        }
        return query;
    }

    unique_ptr<OffloadBindData> Plan(Attempt &attempt, const PushedQuery &query, uint64_t rows_out,
                                     bool rows_known, bool any_order) {
        return planner_.Plan({*attempt.chain.get, attempt.targets, query, rows_out, rows_known, any_order});
    }

    //! Puts a scan of the pushed query in the place of `top`, which is the scan or a filter above it. The
    //! columns keep their bindings.
    void ReplaceScan(Attempt &attempt, unique_ptr<LogicalOperator> &top, unique_ptr<OffloadBindData> data);
    //! Adds the columns that `top`, the scan or a filter above it, returns.
    void AddScanOutputs(Attempt &attempt, LogicalOperator &top, PushedQuery &query,
                        std::vector<size_t> &outputs);

    bool PushScan(Attempt &attempt);
    bool PushFirstRows(Attempt &attempt, uint64_t rows,
                       const duckdb::vector<duckdb::BoundOrderByNode> *orders);
    bool PushTopN(Attempt &attempt);
    bool PushLimit(Attempt &attempt);
    bool PushAggregate(Attempt &attempt);
    //! Makes the aggregate merge the partial aggregates that `data`'s scan returns as columns of `table`.
    void ReplaceAggregate(LogicalAggregate &aggregate, duckdb::TableIndex table,
                          unique_ptr<OffloadBindData> data, duckdb::vector<unique_ptr<Expression>> groups,
                          duckdb::vector<unique_ptr<Expression>> merged, uint64_t rows);

    duckdb::ClientContext &context_;
    duckdb::Binder &binder_;
    OffloadPlanner planner_;
    const bool keeps_order_; //!< where nothing else is said, rows are in the order of objects
    bool any_order_;         //!< nothing above depends on the order of the operator's rows
};

void OffloadRewriter::AddScanOutputs(Attempt &attempt, LogicalOperator &top, PushedQuery &query,
                                     std::vector<size_t> &outputs) {
    outputs.assign(attempt.chain.get->GetColumnIds().size(), OffloadBindData::NO_OUTPUT);
    for (const auto &binding : top.GetColumnBindings()) {
        outputs[binding.column_index.GetIndex()] = query.AddColumn(binding.column_index.GetIndex());
    }
    if (query.request.outputs.empty()) {
        throw NotPushable{"no column is needed"};
    }
}

void OffloadRewriter::ReplaceScan(Attempt &attempt, unique_ptr<LogicalOperator> &top,
                                  unique_ptr<OffloadBindData> data) {
    LogicalGet &old = *attempt.chain.get;
    duckdb::vector<LogicalType> types;
    duckdb::vector<duckdb::Identifier> names;
    duckdb::vector<duckdb::ColumnIndex> columns;
    for (const auto &column : old.GetColumnIds()) {
        columns.emplace_back(types.size());
        types.push_back(old.GetColumnType(column));
        names.push_back(old.GetColumnName(column));
        const bool stored = !column.IsVirtualColumn() && !column.HasChildren() && !column.HasType();
        const auto name = stored ? NameInObjects(old, column.GetPrimaryIndex()) : duckdb::Identifier();
        const bool plain =
            !name.empty() && IsPushableType(types.back()) && !IsNamedAsVirtualColumn(old, name);
        data->columns.push_back({plain ? name.GetIdentifierName() : "", types.back().ToString()});
    }
    data->column_types = types;
    auto scan =
        make_uniq<LogicalGet>(old.table_index, duckdb::BoundTableFunction(OffloadScan(data->any_order)),
                              std::move(data), std::move(types), std::move(names));
    scan->SetColumnIds(std::move(columns));
    for (const auto &binding : top->GetColumnBindings()) {
        scan->projection_ids.push_back(binding.column_index);
    }
    scan->dynamic_filters = old.dynamic_filters;
    scan->SetEstimatedCardinality(top->estimated_cardinality);
    scan->ResolveOperatorTypes();
    top = std::move(scan);
}

bool OffloadRewriter::PushScan(Attempt &attempt) {
    if (!attempt.chain.projections.empty()) {
        return false;
    }
    PushedQuery query = StartQuery(attempt);
    std::vector<size_t> outputs;
    AddScanOutputs(attempt, *attempt.op, query, outputs);
    if (auto data = Plan(attempt, query, attempt.op->estimated_cardinality, true, any_order_)) {
        data->outputs = std::move(outputs);
        ReplaceScan(attempt, attempt.op, std::move(data));
    }
    return true;
}

bool OffloadRewriter::PushFirstRows(Attempt &attempt, uint64_t rows,
                                    const duckdb::vector<duckdb::BoundOrderByNode> *orders) {
    if (rows > FIRST_ROWS_MAX) {
        return false;
    }
    PushedQuery query = StartQuery(attempt);
    std::vector<size_t> outputs;
    AddScanOutputs(attempt, **attempt.chain.get_place, query, outputs);
    for (size_t i = 0; orders && i < orders->size(); i++) {
        const auto &node = (*orders)[i];
        RequestOrder key;
        key.output = static_cast<uint32_t>(query.AddSortKey(*node.expression));
        key.descending = node.type == duckdb::OrderType::DESCENDING;
        key.nulls_first = node.null_order == duckdb::OrderByNullType::NULLS_FIRST;
        query.request.order.push_back(key);
    }
    query.request.limit = rows;
    if (auto data = Plan(attempt, query, rows * attempt.targets.size(), true, false)) {
        data->outputs = std::move(outputs);
        ReplaceScan(attempt, *attempt.chain.get_place, std::move(data));
    }
    return true;
}

bool OffloadRewriter::PushTopN(Attempt &attempt) {
    auto &top = attempt.op->Cast<duckdb::LogicalTopN>();
    if (planner_.Mode() == OFFLOAD_AUTO) {
        // DuckDB skips rows that cannot be among the first ones any more, in every object after the
        // first one, and fetches the other columns of the first rows only. An OSD has one object
        // and cannot do either.
        const std::string why = "the first rows of an order are found faster by reading";
        LogReading({attempt.targets.front().path}, why);
        ExplainReading(*attempt.chain.get, why);
        return true;
    }
    return PushFirstRows(attempt, top.limit + top.offset, &top.orders);
}

bool OffloadRewriter::PushLimit(Attempt &attempt) {
    auto &limit = attempt.op->Cast<duckdb::LogicalLimit>();
    const bool has_offset = limit.offset_val.Type() == duckdb::LimitNodeType::CONSTANT_VALUE;
    const bool constant = limit.limit_val.Type() == duckdb::LimitNodeType::CONSTANT_VALUE &&
                          (has_offset || limit.offset_val.Type() == duckdb::LimitNodeType::UNSET);
    if (!constant) {
        return false;
    }
    const uint64_t offset = has_offset ? limit.offset_val.GetConstantValue() : 0;
    return PushFirstRows(attempt, limit.limit_val.GetConstantValue() + offset, nullptr);
}

bool OffloadRewriter::PushAggregate(Attempt &attempt) {
    auto &aggregate = attempt.op->Cast<LogicalAggregate>();
    if (aggregate.grouping_sets.size() > 1 || !aggregate.grouping_functions.empty()) {
        return false;
    }
    PushedQuery query = StartQuery(attempt);
    query.request.aggregate = true;
    query.plain->is_aggregated = true;
    const duckdb::TableIndex table = binder_.GenerateTableIndex();
    duckdb::vector<unique_ptr<Expression>> groups;
    for (auto &group : aggregate.groups) {
        groups.push_back(query.AddGroup(*group, table));
    }
    query.request.group_count = static_cast<uint32_t>(groups.size());
    duckdb::vector<unique_ptr<Expression>> merged;
    for (auto &expression : aggregate.expressions) {
        merged.push_back(
            AddPartialAggregate(context_, query, expression->Cast<BoundAggregateExpression>(), table));
    }
    const bool one_group = groups.empty();
    const uint64_t rows = one_group ? attempt.targets.size() : aggregate.estimated_cardinality;
    auto data = Plan(attempt, query, rows, one_group, true);
    if (!data) {
        return one_group; // with many groups, perhaps the rows below are worth pushing
    }
    ReplaceAggregate(aggregate, table, std::move(data), std::move(groups), std::move(merged), rows);
    return true;
}

void OffloadRewriter::ReplaceAggregate(LogicalAggregate &aggregate, duckdb::TableIndex table,
                                       unique_ptr<OffloadBindData> data,
                                       duckdb::vector<unique_ptr<Expression>> groups,
                                       duckdb::vector<unique_ptr<Expression>> merged, uint64_t rows) {
    duckdb::vector<duckdb::Identifier> names;
    duckdb::vector<duckdb::ColumnIndex> columns;
    duckdb::vector<LogicalType> types = data->types;
    for (size_t i = 0; i < types.size(); i++) {
        data->outputs.push_back(i);
        names.emplace_back("partial" + std::to_string(i));
        columns.emplace_back(i);
    }
    auto scan = make_uniq<LogicalGet>(table, duckdb::BoundTableFunction(OffloadScan(data->any_order)),
                                      std::move(data), std::move(types), std::move(names));
    scan->SetColumnIds(std::move(columns));
    scan->SetEstimatedCardinality(rows);
    scan->ResolveOperatorTypes();
    aggregate.groups = std::move(groups);
    aggregate.expressions = std::move(merged);
    aggregate.group_stats.clear();
    aggregate.group_stats.resize(aggregate.groups.size());
    aggregate.distinct_validity = duckdb::TupleDataValidityType::CAN_HAVE_NULL_VALUES;
    aggregate.children[0] = std::move(scan);
}

bool HasOnlyColumns(const LogicalOperator &projection) {
    return std::all_of(
        projection.expressions.begin(), projection.expressions.end(), [](const auto &expression) {
            return expression->GetExpressionClass() == duckdb::ExpressionClass::BOUND_COLUMN_REF;
        });
}

//! DuckDB would read the columns of the order first and join the other columns of the first rows to them. The
//! OSDs return the first rows with all columns. Where a projection computes something, it would do so for all
//! rows, and perhaps fail for one that is not among the first.
void DisableLateMaterialization(LogicalOperator &op) {
    if (op.type == LogicalOperatorType::LOGICAL_PROJECTION && !HasOnlyColumns(op)) {
        return;
    }
    if (op.type == LogicalOperatorType::LOGICAL_GET) {
        auto &get = op.Cast<LogicalGet>();
        try {
            if (!RadosParquetPaths(get).empty()) {
                get.function.late_materialization = false;
            }
        } catch (const NotPushable &) {
            return; // it will be read
        }
    }
    for (auto &child : op.children) {
        DisableLateMaterialization(*child);
    }
}

} // namespace

void RegisterOffloadOptimizer(duckdb::ExtensionLoader &loader) {
    NoteBuiltInFunctions(loader.GetDatabaseInstance());
    duckdb::OptimizerExtension extension;
    extension.pre_optimize_function = [](duckdb::OptimizerExtensionInput &input,
                                         unique_ptr<LogicalOperator> &plan) {
        const std::string mode = RadosOffload(input.context);
        const bool pushes = mode == OFFLOAD_ALWAYS || mode == OFFLOAD_SHARED;
        if (pushes && SettingInTheWay(input.context).empty()) {
            DisableLateMaterialization(*plan);
        }
    };
    extension.optimize_function = [](duckdb::OptimizerExtensionInput &input,
                                     unique_ptr<LogicalOperator> &plan) {
        const InterruptScope scope(InterruptCheckOf(input.context));
        PruneObjects(input.context, *plan);
        OffloadRewriter(input).Rewrite(plan);
    };
    duckdb::OptimizerExtension::Register(duckdb::DBConfig::GetConfig(loader.GetDatabaseInstance()),
                                         std::move(extension));
}

} // namespace rawduck_ceph
