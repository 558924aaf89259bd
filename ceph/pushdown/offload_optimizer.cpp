#include "ceph/pushdown/offload_optimizer.hpp"

#include "ceph/pushdown/decision/object_estimate.hpp"
#include "ceph/pushdown/decision/offload_decision.hpp"
#include "ceph/pushdown/plan/merge_functions.hpp"
#include "ceph/pushdown/plan/parquet_scan.hpp"
#include "ceph/pushdown/plan/pushed_query.hpp"
#include "ceph/pushdown/scan/offload_scan.hpp"
#include "ceph/settings/offload_setting.hpp"

#include "duckdb/function/builtin_function_lookup.hpp"
#include "duckdb/function/function_binder.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/optimizer/optimizer.hpp"
#include "duckdb/optimizer/optimizer_extension.hpp"
#include "duckdb/parallel/task_scheduler.hpp"
#include "duckdb/planner/binder.hpp"
#include "duckdb/planner/expression/bound_columnref_expression.hpp"
#include "duckdb/planner/operator/logical_limit.hpp"
#include "duckdb/planner/operator/logical_top_n.hpp"

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

//! More first rows than this are not worth sorting in every object.
constexpr uint64_t FIRST_ROWS_MAX = 100000;

//! So many objects are asked first where nothing has been answered yet: perhaps nothing will be.
constexpr size_t UNTRIED_FIRST = 2;

std::string Setting(duckdb::ClientContext &context, const char *name) {
    duckdb::Value value;
    context.TryGetCurrentSetting(duckdb::Identifier(name), value);
    return value.ToString();
}

std::string Join(const std::vector<std::string> &texts) {
    std::string joined;
    for (const std::string &text : texts) {
        joined += (joined.empty() ? "" : ", ") + text;
    }
    return joined;
}

//! The pushed part as people read it.
std::string Describe(const Request &request) {
    std::string text = Join(request.outputs);
    text += request.filter.empty() ? "" : " WHERE " + request.filter;
    text += request.group_count > 0 ? " GROUP BY " + std::to_string(request.group_count) + " first" : "";
    text += request.order.empty() ? "" : " ORDER BY " + std::to_string(request.order.size()) + " keys";
    text += request.limit == Request::NO_LIMIT ? "" : " LIMIT " + std::to_string(request.limit);
    return text;
}

class OffloadRewriter {
  public:
    explicit OffloadRewriter(duckdb::OptimizerExtensionInput &input)
        : context_(input.context), binder_(input.optimizer.binder),
          mode_(Setting(input.context, SETTING_RADOS_OFFLOAD)) {}

    void Rewrite(unique_ptr<LogicalOperator> &op) {
        if (mode_ == "never") {
            return;
        }
        bool replaced = false;
        const bool whole = mode_ != "filters";
        switch (op->type) {
        case LogicalOperatorType::LOGICAL_AGGREGATE_AND_GROUP_BY:
            replaced = whole && Try(op, op->children[0], &OffloadRewriter::PushAggregate);
            break;
        case LogicalOperatorType::LOGICAL_TOP_N:
            replaced = whole && Try(op, op->children[0], &OffloadRewriter::PushTopN);
            break;
        case LogicalOperatorType::LOGICAL_LIMIT:
            replaced = whole && Try(op, op->children[0], &OffloadRewriter::PushLimit);
            break;
        case LogicalOperatorType::LOGICAL_FILTER:
        case LogicalOperatorType::LOGICAL_GET:
            replaced = Try(op, op, &OffloadRewriter::PushScan);
            break;
        default:
            break;
        }
        if (!replaced) {
            for (auto &child : op->children) {
                Rewrite(child);
            }
        }
    }

  private:
    //! One attempt at one scan.
    struct Attempt {
        unique_ptr<LogicalOperator> &op;
        ScanChain chain;
        std::vector<CallTarget> targets;
    };
    using Push = bool (OffloadRewriter::*)(Attempt &attempt);

    //! Runs `push` when a scan of rados:// objects is below `below`. True when the plan was changed.
    bool Try(unique_ptr<LogicalOperator> &op, unique_ptr<LogicalOperator> &below, Push push) {
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
            // The last word on a scan is said where nothing but the scan is tried.
            if (push == &OffloadRewriter::PushScan) {
                Remember(paths, false, "", reason.why);
                ExplainReading(*attempt.chain.get, reason.why);
            }
            return false;
        } catch (const duckdb::InterruptException &) {
            throw;
        } catch (const std::exception &error) {
            // Nothing has changed in the plan yet: reading is always possible, and says itself what is wrong.
            Remember(paths, false, "", duckdb::ErrorData(error).RawMessage());
            return false;
        }
    }

    PushedQuery Query(Attempt &attempt) {
        PushedQuery query(context_, *attempt.chain.get);
        for (auto *projection : attempt.chain.projections) {
            query.AddProjection(*projection);
        }
        for (auto *filter : attempt.chain.filters) {
            for (auto &expression : filter->expressions) {
                query.AddFilter(*expression);
            }
        }
        return query;
    }

    //! The same for all attempts at a scan: what an aggregate over it was estimated with, the scan is too.
    const ObjectEstimate &EstimateOf(const Attempt &attempt) {
        if (!estimate_ || !estimate_->IsOf(*attempt.chain.get)) {
            estimate_.reset();
            estimate_ =
                std::make_unique<ObjectEstimate>(context_, *attempt.chain.get, attempt.targets.front());
        }
        return *estimate_;
    }

    std::shared_ptr<ScanRecord> Remember(const std::vector<std::string> &paths, bool offloaded,
                                         const std::string &what, const std::string &why) {
        auto record = NewScanRecord(paths.empty() ? "" : paths.front(), paths.size());
        record->offloaded = offloaded;
        record->what = what;
        record->why = why;
        return record;
    }

    //! Decides, and makes the scan's data when the decision is to push. Null: it is not.
    unique_ptr<OffloadBindData> Decided(Attempt &attempt, PushedQuery &query, uint64_t rows_out,
                                        bool rows_known);
    //! Puts a scan of the pushed query in the place of `top`, the
    //! scan or a filter above it; the columns keep their bindings.
    void Replace(Attempt &attempt, unique_ptr<LogicalOperator> &top, unique_ptr<OffloadBindData> data);
    //! The columns that `top`, the scan or a filter above it, hands on.
    void AddScanOutputs(Attempt &attempt, LogicalOperator &top, PushedQuery &query,
                        std::vector<size_t> &outputs);

    bool PushScan(Attempt &attempt);
    bool PushFirstRows(Attempt &attempt, uint64_t rows,
                       const duckdb::vector<duckdb::BoundOrderByNode> *orders);
    bool PushTopN(Attempt &attempt);
    bool PushLimit(Attempt &attempt);
    bool PushAggregate(Attempt &attempt);
    unique_ptr<Expression> PushOneAggregate(PushedQuery &query, const BoundAggregateExpression &aggregate,
                                            duckdb::TableIndex table);

    duckdb::ClientContext &context_;
    duckdb::Binder &binder_;
    const std::string mode_;
    std::unique_ptr<ObjectEstimate> estimate_; //!< of the scan that was tried last
};

unique_ptr<OffloadBindData> OffloadRewriter::Decided(Attempt &attempt, PushedQuery &query, uint64_t rows_out,
                                                     bool rows_known) {
    std::vector<std::string> paths;
    for (const CallTarget &target : attempt.targets) {
        paths.push_back(target.path);
    }
    const std::string what = Describe(query.request);
    Decision decision;
    decision.offload = true;
    decision.why = std::string(SETTING_RADOS_OFFLOAD) + " = '" + mode_ + "'";
    auto data = make_uniq<OffloadBindData>();
    data->learn_as = paths.front() + ": " + what;
    if (mode_ == "auto") {
        const std::string no_class = attempt.targets.front().pool->classes.RefusedBecause();
        if (!no_class.empty()) {
            throw NotPushable{no_class};
        }
        const ObjectEstimate &object = EstimateOf(attempt);
        const ScanEstimate estimate =
            EstimateScan(object, attempt.targets.size(), query, rows_out, rows_known);
        const auto threads = duckdb::TaskScheduler::GetScheduler(context_).NumberOfThreads();
        auto speeds = [&] {
            return SpeedsOf(attempt.targets.front().pool->Stats(), static_cast<size_t>(threads));
        };
        const uint64_t learned = LearnedReplyBytes(data->learn_as);
        decision = Decide(estimate, speeds(), learned);
        if (decision.link_tells) {
            object.TryLink();
            decision = Decide(estimate, speeds(), learned);
        }
    }
    auto record = Remember(paths, decision.offload, what, decision.why);
    if (!decision.offload) {
        ExplainReading(*attempt.chain.get, decision.why);
        return nullptr;
    }
    estimate_.reset(); // its scan will be replaced
    query.request.reply_bytes_max = decision.reply_bytes_max;
    const bool lz4 =
        decision.lz4 || mode_ == "filters" || Setting(context_, SETTING_RADOS_OFFLOAD_LZ4) == "true";
    query.request.format = lz4 ? ReplyFormat::CHUNKS_LZ4 : ReplyFormat::CHUNKS;
    data->limits.most = std::stoul(Setting(context_, SETTING_RADOS_OFFLOAD_IN_FLIGHT));
    const bool untried = !attempt.targets.front().pool->classes.HasAnswered();
    data->limits.first = decision.probe ? 1 : untried ? UNTRIED_FIRST : data->limits.most;
    data->targets = std::move(attempt.targets);
    data->request = query.request;
    data->types = query.types;
    data->record = std::move(record);
    return data;
}

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

void OffloadRewriter::Replace(Attempt &attempt, unique_ptr<LogicalOperator> &top,
                              unique_ptr<OffloadBindData> data) {
    LogicalGet &old = *attempt.chain.get;
    duckdb::vector<LogicalType> types;
    duckdb::vector<duckdb::Identifier> names;
    duckdb::vector<duckdb::ColumnIndex> columns;
    for (const auto &column : old.GetColumnIds()) {
        columns.emplace_back(types.size());
        types.push_back(old.GetColumnType(column));
        names.push_back(old.GetColumnName(column));
        const bool plain = !column.IsVirtualColumn() && !column.HasChildren() && !column.HasType();
        data->columns.push_back({plain ? names.back().GetIdentifierName() : "", types.back().ToString()});
    }
    auto scan = make_uniq<LogicalGet>(old.table_index, duckdb::BoundTableFunction(OffloadScan()),
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
    if (!attempt.chain.projections.empty() || attempt.chain.filters.size() > 1) {
        return false;
    }
    PushedQuery query = Query(attempt);
    std::vector<size_t> outputs;
    AddScanOutputs(attempt, *attempt.op, query, outputs);
    auto data = Decided(attempt, query, attempt.op->estimated_cardinality, true);
    if (!data) {
        return true; // decided: nothing below is looked at again
    }
    data->outputs = std::move(outputs);
    Replace(attempt, attempt.op, std::move(data));
    return true;
}

bool OffloadRewriter::PushFirstRows(Attempt &attempt, uint64_t rows,
                                    const duckdb::vector<duckdb::BoundOrderByNode> *orders) {
    if (rows > FIRST_ROWS_MAX) {
        return false;
    }
    PushedQuery query = Query(attempt);
    std::vector<size_t> outputs;
    AddScanOutputs(attempt, **attempt.chain.get_place, query, outputs);
    for (size_t i = 0; orders && i < orders->size(); i++) {
        const auto &node = (*orders)[i];
        RequestOrder key;
        key.output = static_cast<uint32_t>(query.AddOutput(*node.expression));
        key.descending = node.type == duckdb::OrderType::DESCENDING;
        key.nulls_first = node.null_order == duckdb::OrderByNullType::NULLS_FIRST;
        query.request.order.push_back(key);
    }
    query.request.limit = rows;
    auto data = Decided(attempt, query, rows * attempt.targets.size(), true);
    if (!data) {
        return true;
    }
    data->outputs = std::move(outputs);
    Replace(attempt, *attempt.chain.get_place, std::move(data));
    return true;
}

bool OffloadRewriter::PushTopN(Attempt &attempt) {
    auto &top = attempt.op->Cast<duckdb::LogicalTopN>();
    if (mode_ == "auto") {
        // Reading skips what cannot be among the first rows any more, in every object after the first, and
        // fetches other columns for these rows only. An OSD knows its own object alone.
        const std::string why = "the first rows of an order are found faster by reading";
        Remember({attempt.targets.front().path}, false, "", why);
        ExplainReading(*attempt.chain.get, why);
        return true;
    }
    return PushFirstRows(attempt, top.limit + top.offset, &top.orders);
}

bool OffloadRewriter::PushLimit(Attempt &attempt) {
    auto &limit = attempt.op->Cast<duckdb::LogicalLimit>();
    const bool constant = limit.limit_val.Type() == duckdb::LimitNodeType::CONSTANT_VALUE &&
                          (limit.offset_val.Type() == duckdb::LimitNodeType::UNSET ||
                           limit.offset_val.Type() == duckdb::LimitNodeType::CONSTANT_VALUE);
    if (!constant) {
        return false;
    }
    const bool has_offset = limit.offset_val.Type() == duckdb::LimitNodeType::CONSTANT_VALUE;
    return PushFirstRows(
        attempt, limit.limit_val.GetConstantValue() + (has_offset ? limit.offset_val.GetConstantValue() : 0),
        nullptr);
}

unique_ptr<Expression> OffloadRewriter::PushOneAggregate(PushedQuery &query,
                                                         const BoundAggregateExpression &aggregate,
                                                         duckdb::TableIndex table) {
    const std::string name = aggregate.Function().GetName().GetIdentifierName();
    if (aggregate.IsDistinct() || aggregate.GetOrderBys() || aggregate.GetChildren().size() > 1) {
        throw NotPushable{"an aggregate is DISTINCT, ordered or has several arguments"};
    }
    const LogicalType type = aggregate.GetReturnType();
    auto column = [&](size_t output) {
        return unique_ptr<Expression>(make_uniq<duckdb::BoundColumnRefExpression>(
            query.types[output], duckdb::ColumnBinding(table, duckdb::ProjectionIndex(output))));
    };
    duckdb::FunctionBinder binder(context_);
    duckdb::vector<unique_ptr<Expression>> arguments;
    unique_ptr<BoundAggregateExpression> merged;
    if (name == "count" || name == "count_star") {
        arguments.push_back(column(query.AddAggregate("count", aggregate, LogicalType::BIGINT)));
        merged = binder.BindAggregateFunction(MergeCounts(), std::move(arguments));
    } else if (name == "sum" || name == "sum_no_overflow" || name == "min" || name == "max") {
        const std::string function = name == "sum_no_overflow" ? "sum" : name;
        arguments.push_back(column(query.AddAggregate(function, aggregate, type)));
        merged = binder.BindAggregateFunction(
            duckdb::GetBuiltinAggregateFunction(context_, duckdb::Identifier(function), {type}),
            std::move(arguments));
    } else if (name == "avg" && type == LogicalType::DOUBLE) {
        const LogicalType &argument = aggregate.GetChildren()[0]->GetReturnType();
        const bool exact = argument.IsIntegral() || argument.id() == duckdb::LogicalTypeId::DECIMAL;
        const LogicalType sum_type = argument.id() == duckdb::LogicalTypeId::DECIMAL
                                         ? LogicalType::DECIMAL(38, duckdb::DecimalType::GetScale(argument))
                                     : exact ? LogicalType::HUGEINT
                                             : LogicalType::DOUBLE;
        const bool narrow = exact && duckdb::GetTypeIdSize(argument.InternalType()) <= 2;
        arguments.push_back(column(query.AddAggregate("sum", aggregate, sum_type)));
        arguments.push_back(column(query.AddAggregate("count", aggregate, LogicalType::BIGINT)));
        merged = binder.BindAggregateFunction(MergeAverages(sum_type, narrow), std::move(arguments));
    } else {
        throw NotPushable{"aggregate " + name + " has no partial form here"};
    }
    if (merged->GetReturnType() != type) {
        throw NotPushable{"the parts of " + name + " do not add up to " + type.ToString()};
    }
    return std::move(merged);
}

bool OffloadRewriter::PushAggregate(Attempt &attempt) {
    auto &aggregate = attempt.op->Cast<LogicalAggregate>();
    if (aggregate.grouping_sets.size() > 1 || !aggregate.grouping_functions.empty()) {
        return false;
    }
    PushedQuery query = Query(attempt);
    query.request.aggregate = true;
    const duckdb::TableIndex table = binder_.GenerateTableIndex();
    duckdb::vector<unique_ptr<Expression>> groups;
    for (auto &group : aggregate.groups) {
        const size_t output = query.AddGroup(*group);
        groups.push_back(make_uniq<duckdb::BoundColumnRefExpression>(
            query.types[output], duckdb::ColumnBinding(table, duckdb::ProjectionIndex(output))));
    }
    query.request.group_count = static_cast<uint32_t>(groups.size());
    duckdb::vector<unique_ptr<Expression>> merged;
    for (auto &expression : aggregate.expressions) {
        merged.push_back(PushOneAggregate(query, expression->Cast<BoundAggregateExpression>(), table));
    }
    const uint64_t rows = groups.empty() ? attempt.targets.size() : aggregate.estimated_cardinality;
    auto data = Decided(attempt, query, rows, groups.empty());
    if (!data) {
        return groups.empty(); // of many groups, perhaps the rows below are worth pushing
    }
    duckdb::vector<duckdb::Identifier> names;
    duckdb::vector<duckdb::ColumnIndex> columns;
    for (size_t i = 0; i < query.types.size(); i++) {
        data->outputs.push_back(i);
        names.emplace_back("partial" + std::to_string(i));
        columns.emplace_back(i);
    }
    auto scan = make_uniq<LogicalGet>(table, duckdb::BoundTableFunction(OffloadScan()), std::move(data),
                                      query.types, std::move(names));
    scan->SetColumnIds(std::move(columns));
    scan->SetEstimatedCardinality(rows);
    scan->ResolveOperatorTypes();
    aggregate.groups = std::move(groups);
    aggregate.expressions = std::move(merged);
    aggregate.group_stats.clear();
    aggregate.group_stats.resize(aggregate.groups.size());
    aggregate.distinct_validity = duckdb::TupleDataValidityType::CAN_HAVE_NULL_VALUES;
    aggregate.children[0] = std::move(scan);
    return true;
}

//! DuckDB would read the order's columns first and join the other columns of the first rows to them; the OSDs
//! are asked for the first rows themselves.
void KeepFirstRowsWhole(LogicalOperator &op) {
    if (op.type == LogicalOperatorType::LOGICAL_GET) {
        auto &get = op.Cast<LogicalGet>();
        try {
            if (!RadosParquetPaths(get).empty()) {
                get.function.late_materialization = false;
            }
        } catch (const NotPushable &) {
            return; // nothing of it will be pushed
        }
    }
    for (auto &child : op.children) {
        KeepFirstRowsWhole(*child);
    }
}

} // namespace

void RegisterOffload(duckdb::ExtensionLoader &loader) {
    auto &config = duckdb::DBConfig::GetConfig(loader.GetDatabaseInstance());
    AddOffloadSettings(config);
    duckdb::OptimizerExtension extension;
    extension.pre_optimize_function = [](duckdb::OptimizerExtensionInput &input,
                                         unique_ptr<LogicalOperator> &plan) {
        if (Setting(input.context, SETTING_RADOS_OFFLOAD) == "always") {
            KeepFirstRowsWhole(*plan);
        }
    };
    extension.optimize_function = [](duckdb::OptimizerExtensionInput &input,
                                     unique_ptr<LogicalOperator> &plan) {
        OffloadRewriter(input).Rewrite(plan);
    };
    duckdb::OptimizerExtension::Register(config, std::move(extension));
}

} // namespace rawduck_ceph
