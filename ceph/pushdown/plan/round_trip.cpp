#include "ceph/pushdown/plan/round_trip.hpp"

#include "duckdb/common/error_data.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/execution/expression_executor.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/planner/binder.hpp"
#include "duckdb/planner/expression/bound_between_expression.hpp"
#include "duckdb/planner/expression/bound_cast_expression.hpp"
#include "duckdb/planner/expression/bound_columnref_expression.hpp"
#include "duckdb/planner/expression/bound_constant_expression.hpp"
#include "duckdb/planner/expression/bound_function_expression.hpp"
#include "duckdb/planner/expression_binder/where_binder.hpp"
#include "duckdb/planner/expression_iterator.hpp"

namespace rawduck_ceph {

namespace {

using duckdb::Expression;
using duckdb::ExpressionClass;
using duckdb::ExpressionType;
using duckdb::unique_ptr;

bool IsConstant(const Expression &expression) {
    return expression.GetExpressionClass() == ExpressionClass::BOUND_CONSTANT;
}

//! Replaces what has the same value for all rows by this value. What fails to evaluate stays: it fails then.
void FoldConstants(duckdb::ClientContext &context, unique_ptr<Expression> &expression) {
    if (IsConstant(*expression)) {
        return;
    }
    duckdb::Value value;
    if (expression->IsFoldable() &&
        duckdb::ExpressionExecutor::TryEvaluateScalar(context, *expression, value)) {
        expression = duckdb::make_uniq<duckdb::BoundConstantExpression>(std::move(value));
        return;
    }
    duckdb::ExpressionIterator::EnumerateChildren(
        *expression, [&](unique_ptr<Expression> &child) { FoldConstants(context, child); });
}

//! The parts of nested conjunctions of one kind, and the bounds of a BETWEEN that excludes one of them, which
//! are comparisons in SQL.
void CollectParts(const Expression &expression, ExpressionType conjunction,
                  std::vector<const Expression *> &parts) {
    if (expression.GetExpressionType() != conjunction) {
        parts.push_back(&expression);
        return;
    }
    duckdb::ExpressionIterator::EnumerateChildren(
        expression, [&](const Expression &child) { CollectParts(child, conjunction, parts); });
}

std::vector<const Expression *> Children(const Expression &expression) {
    std::vector<const Expression *> children;
    const bool conjunction = expression.GetExpressionClass() == ExpressionClass::BOUND_CONJUNCTION;
    duckdb::ExpressionIterator::EnumerateChildren(expression, [&](const Expression &child) {
        if (conjunction) {
            CollectParts(child, expression.GetExpressionType(), children);
        } else {
            children.push_back(&child);
        }
    });
    return children;
}

class Comparison {
  public:
    Comparison(const RequestSchema &schema, const ColumnName &column_name)
        : schema_(schema), column_name_(column_name) {}

    //! Sets `difference` and returns false when the expressions are not the same.
    bool Same(const Expression &original, const Expression &bound) {
        const auto original_children = Children(original), bound_children = Children(bound);
        if (original.GetExpressionClass() != bound.GetExpressionClass() ||
            original.GetExpressionType() != bound.GetExpressionType() ||
            original.GetReturnType() != bound.GetReturnType() ||
            original_children.size() != bound_children.size() || !SameNode(original, bound)) {
            return Differ(original, bound);
        }
        for (size_t i = 0; i < original_children.size(); i++) {
            if (!Same(*original_children[i], *bound_children[i])) {
                return false;
            }
        }
        return true;
    }

    std::string difference;

  private:
    bool Differ(const Expression &original, const Expression &bound) {
        difference = original.ToString() + " (" + original.GetReturnType().ToString() + ") is bound as " +
                     bound.ToString() + " (" + bound.GetReturnType().ToString() + ")";
        return false;
    }

    bool SameNode(const Expression &original, const Expression &bound) const {
        switch (original.GetExpressionClass()) {
        case ExpressionClass::BOUND_CONSTANT:
            return duckdb::Value::NotDistinctFrom(original.Cast<duckdb::BoundConstantExpression>().GetValue(),
                                                  bound.Cast<duckdb::BoundConstantExpression>().GetValue());
        case ExpressionClass::BOUND_COLUMN_REF: {
            const auto &reference = bound.Cast<duckdb::BoundColumnRefExpression>();
            const auto &name = schema_.names[reference.Binding().column_index.GetIndex()];
            return column_name_(original) == name.GetIdentifierName();
        }
        case ExpressionClass::BOUND_FUNCTION:
            return SameFunction(original.Cast<duckdb::BoundFunctionExpression>(),
                                bound.Cast<duckdb::BoundFunctionExpression>());
        case ExpressionClass::BOUND_CASE:
        case ExpressionClass::BOUND_CONJUNCTION:
        case ExpressionClass::BOUND_OPERATOR:
            return true; // their kind, types and children say everything
        default:
            return false;
        }
    }

    static bool SameFunction(const duckdb::BoundFunctionExpression &original,
                             const duckdb::BoundFunctionExpression &bound) {
        if (original.Function().GetName() != bound.Function().GetName()) {
            return false;
        }
        if (duckdb::BoundCastExpression::IsCast(original)) {
            return duckdb::BoundCastExpression::IsTryCast(original) ==
                   duckdb::BoundCastExpression::IsTryCast(bound);
        }
        if (original.GetExpressionType() == ExpressionType::COMPARE_BETWEEN) {
            return duckdb::BoundBetweenExpression::LowerInclusive(original) ==
                       duckdb::BoundBetweenExpression::LowerInclusive(bound) &&
                   duckdb::BoundBetweenExpression::UpperInclusive(original) ==
                       duckdb::BoundBetweenExpression::UpperInclusive(bound);
        }
        return true;
    }

    const RequestSchema &schema_;
    const ColumnName &column_name_;
};

} // namespace

std::string RoundTripDifference(duckdb::ClientContext &context, const Expression &original,
                                const duckdb::ParsedExpression &exported, const RequestSchema &schema,
                                const ColumnName &column_name) {
    try {
        auto binder = duckdb::Binder::CreateBinder(context);
        binder->bind_context.AddGenericBinding(binder->GenerateTableIndex(), duckdb::Identifier("object"),
                                               schema.names, schema.types);
        duckdb::WhereBinder expression_binder(*binder, context);
        expression_binder.target_type = duckdb::LogicalType::INVALID;
        auto copy = exported.Copy();
        auto bound = expression_binder.Bind(copy);
        auto folded = original.Copy();
        FoldConstants(context, bound);
        FoldConstants(context, folded);
        Comparison comparison(schema, column_name);
        return comparison.Same(*folded, *bound) ? "" : comparison.difference;
    } catch (const duckdb::InterruptException &) {
        throw;
    } catch (const std::exception &error) {
        return duckdb::ErrorData(error).RawMessage();
    }
}

} // namespace rawduck_ceph
