#include "ceph/pushdown/plan/partial_aggregate.hpp"

#include "ceph/pushdown/plan/merge_functions.hpp"

#include "duckdb/function/builtin_function_lookup.hpp"
#include "duckdb/function/function_binder.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/planner/expression/bound_columnref_expression.hpp"

namespace rawduck_ceph {

namespace {

using duckdb::BoundAggregateExpression;
using duckdb::Expression;
using duckdb::LogicalType;
using duckdb::unique_ptr;

//! Builds the partial aggregates of one aggregate, and binds what merges them.
class PartialAggregateBuilder {
  public:
    PartialAggregateBuilder(duckdb::ClientContext &context, PushedQuery &query,
                            const BoundAggregateExpression &aggregate, duckdb::TableIndex table)
        : context_(context), binder_(context), query_(query), aggregate_(aggregate), table_(table) {}

    unique_ptr<BoundAggregateExpression> Build() {
        const std::string name = aggregate_.Function().GetName().GetIdentifierName();
        if (aggregate_.IsDistinct() || aggregate_.GetOrderBys() || aggregate_.GetChildren().size() > 1) {
            throw NotPushable{"an aggregate is DISTINCT, ordered or has several arguments"};
        }
        if (name == "count" || name == "count_star") {
            return Count();
        }
        if (name == "sum" || name == "sum_no_overflow" || name == "min" || name == "max" ||
            name == "bool_and" || name == "bool_or") {
            return SameFunction(name == "sum_no_overflow" ? "sum" : name);
        }
        if (name == "avg" && aggregate_.GetReturnType() == LogicalType::DOUBLE) {
            return Average();
        }
        throw NotPushable{"aggregate " + name + " has no partial form here"};
    }

  private:
    unique_ptr<Expression> Partial(const std::string &function, const LogicalType &type) {
        return OutputReference(query_, query_.AddAggregate(function, aggregate_, type), table_);
    }

    unique_ptr<BoundAggregateExpression> Count() {
        duckdb::vector<unique_ptr<Expression>> arguments;
        arguments.push_back(Partial("count", LogicalType::BIGINT));
        return binder_.BindAggregateFunction(MergeCounts(), std::move(arguments));
    }

    //! Functions that merge their own results. A sum of values of up to 64 bits fits into 128 bits, whatever their
    //! number. One of wider values may overflow in one object although the total fits, where others have the
    //! opposite sign: the class reports it, and the object's rows are added one by one, as in a query that reads.
    unique_ptr<BoundAggregateExpression> SameFunction(const std::string &function) {
        const LogicalType type = aggregate_.GetReturnType();
        duckdb::vector<unique_ptr<Expression>> arguments;
        arguments.push_back(Partial(function, type));
        return binder_.BindAggregateFunction(
            duckdb::GetBuiltinAggregateFunction(context_, duckdb::Identifier(function), {type}),
            std::move(arguments));
    }

    unique_ptr<BoundAggregateExpression> Average() {
        const LogicalType &argument = aggregate_.GetChildren()[0]->GetReturnType();
        const bool is_decimal = argument.id() == duckdb::LogicalTypeId::DECIMAL;
        const bool exact = argument.IsIntegral() || is_decimal;
        const LogicalType sum_type = is_decimal
                                         ? LogicalType::DECIMAL(38, duckdb::DecimalType::GetScale(argument))
                                     : exact ? LogicalType::HUGEINT
                                             : LogicalType::DOUBLE;
        const bool narrow = exact && duckdb::GetTypeIdSize(argument.InternalType()) <= 2;
        duckdb::vector<unique_ptr<Expression>> arguments;
        arguments.push_back(Partial("sum", sum_type));
        arguments.push_back(Partial("count", LogicalType::BIGINT));
        return binder_.BindAggregateFunction(MergeAverages(sum_type, narrow), std::move(arguments));
    }

    duckdb::ClientContext &context_;
    duckdb::FunctionBinder binder_;
    PushedQuery &query_;
    const BoundAggregateExpression &aggregate_;
    const duckdb::TableIndex table_;
};

} // namespace

unique_ptr<Expression> OutputReference(const PushedQuery &query, size_t output, duckdb::TableIndex table) {
    return duckdb::make_uniq<duckdb::BoundColumnRefExpression>(
        query.types[output], duckdb::ColumnBinding(table, duckdb::ProjectionIndex(output)));
}

unique_ptr<Expression> AddPartialAggregate(duckdb::ClientContext &context, PushedQuery &query,
                                           const BoundAggregateExpression &aggregate,
                                           duckdb::TableIndex table) {
    auto merged = PartialAggregateBuilder(context, query, aggregate, table).Build();
    if (merged->GetReturnType() != aggregate.GetReturnType()) {
        throw NotPushable{"the parts of " + aggregate.Function().GetName().GetIdentifierName() +
                          " do not add up to " + aggregate.GetReturnType().ToString()};
    }
    return std::move(merged);
}

} // namespace rawduck_ceph
