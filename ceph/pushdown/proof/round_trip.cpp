#include "ceph/pushdown/proof/round_trip.hpp"

#include "ceph/pushdown/proof/built_in_functions.hpp"
#include "ceph/query/statement.hpp"

#include "duckdb/common/error_data.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/execution/expression_executor.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/planner/binder.hpp"
#include "duckdb/planner/expression/bound_between_expression.hpp"
#include "duckdb/planner/expression/bound_cast_expression.hpp"
#include "duckdb/planner/expression/bound_columnref_expression.hpp"
#include "duckdb/planner/expression/bound_comparison_expression.hpp"
#include "duckdb/planner/expression/bound_conjunction_expression.hpp"
#include "duckdb/planner/expression/bound_constant_expression.hpp"
#include "duckdb/planner/expression/bound_function_expression.hpp"
#include "duckdb/planner/expression_binder/where_binder.hpp"
#include "duckdb/planner/expression_iterator.hpp"

#include <cstring>

namespace rawduck_ceph {

namespace {

using duckdb::Expression;
using duckdb::ExpressionClass;
using duckdb::ExpressionType;
using duckdb::unique_ptr;

bool IsConstant(const Expression &expression) {
    return expression.GetExpressionClass() == ExpressionClass::BOUND_CONSTANT;
}

//! The first part that calls another function than DuckDB's own; null where there is none.
const Expression *FindForeignCall(const Expression &expression) {
    // Casts and comparisons are functions as well, but not of the catalog: nobody can add one.
    if (expression.GetExpressionType() == ExpressionType::BOUND_FUNCTION &&
        !IsBuiltIn(expression.Cast<duckdb::BoundFunctionExpression>().Function())) {
        return &expression;
    }
    const Expression *found = nullptr;
    duckdb::ExpressionIterator::EnumerateChildren(
        expression, [&](const Expression &child) { found = found ? found : FindForeignCall(child); });
    return found;
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

//! A BETWEEN that excludes one of its bounds has no form in SQL but two comparisons.
void ExpandBetween(unique_ptr<Expression> &expression) {
    duckdb::ExpressionIterator::EnumerateChildren(
        *expression, [](unique_ptr<Expression> &child) { ExpandBetween(child); });
    if (expression->GetExpressionType() != ExpressionType::COMPARE_BETWEEN) {
        return;
    }
    using duckdb::BoundBetweenExpression;
    using duckdb::BoundComparisonExpression;
    auto &between = expression->Cast<duckdb::BoundFunctionExpression>();
    auto lower = BoundComparisonExpression::Create(BoundBetweenExpression::LowerComparisonType(between),
                                                   BoundBetweenExpression::Input(between).Copy(),
                                                   BoundBetweenExpression::LowerBound(between).Copy());
    auto upper = BoundComparisonExpression::Create(BoundBetweenExpression::UpperComparisonType(between),
                                                   BoundBetweenExpression::Input(between).Copy(),
                                                   BoundBetweenExpression::UpperBound(between).Copy());
    expression = duckdb::make_uniq<duckdb::BoundConjunctionExpression>(ExpressionType::CONJUNCTION_AND,
                                                                       std::move(lower), std::move(upper));
}

//! The parts of nested conjunctions of one kind.
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

bool IsDecimalArithmetic(const Expression &expression) {
    if (expression.GetExpressionClass() != ExpressionClass::BOUND_FUNCTION ||
        expression.GetReturnType().id() != duckdb::LogicalTypeId::DECIMAL) {
        return false;
    }
    const auto &function = expression.Cast<duckdb::BoundFunctionExpression>().Function();
    const std::string &name = function.GetName().GetIdentifierName();
    return name.size() == 1 && std::strchr("+-*%", name[0]);
}

//! DuckDB adds DECIMAL(w, s) as DECIMAL(w + 1, s), after it has cast both sides to the result's type. Bound again,
//! the sum of such sides has one more digit, and is cast back. The sum is exact and fits, so it is the same.
const Expression &WithoutWidening(const Expression &original, const Expression &bound) {
    using duckdb::DecimalType;
    if (!IsDecimalArithmetic(original) || !duckdb::BoundCastExpression::IsCast(bound)) {
        return bound;
    }
    const auto &cast = bound.Cast<duckdb::BoundFunctionExpression>();
    const Expression &sum = *cast.GetChildren()[0];
    const auto &name = original.Cast<duckdb::BoundFunctionExpression>().Function().GetName();
    const bool widened =
        (name == "+" || name == "-") && !duckdb::BoundCastExpression::IsTryCast(cast) &&
        IsDecimalArithmetic(sum) &&
        DecimalType::GetScale(sum.GetReturnType()) == DecimalType::GetScale(original.GetReturnType());
    return widened ? sum : bound;
}

class Comparison {
  public:
    Comparison(const RequestSchema &schema, const ColumnName &column_name)
        : schema_(schema), column_name_(column_name) {}

    //! Sets `difference` and returns false when the expressions are not the same.
    bool Same(const Expression &original, const Expression &bound_expression) {
        const Expression &bound = WithoutWidening(original, bound_expression);
        const auto original_children = Children(original), bound_children = Children(bound);
        if (original.GetExpressionClass() != bound.GetExpressionClass() ||
            original.GetExpressionType() != bound.GetExpressionType() ||
            !original.GetReturnType().EqualsIncludingCollation(bound_expression.GetReturnType()) ||
            original_children.size() != bound_children.size() || !SameNode(original, bound)) {
            return Differ(original, bound_expression);
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
        difference = original.ToString() + " (" + original.GetReturnType().ToString() +
                     ") would be bound as " + bound.ToString() + " (" + bound.GetReturnType().ToString() +
                     ")";
        return false;
    }

    bool SameNode(const Expression &original, const Expression &bound) const {
        switch (original.GetExpressionClass()) {
        case ExpressionClass::BOUND_CONSTANT:
            return SameValue(original.Cast<duckdb::BoundConstantExpression>().GetValue(),
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

    //! The text tells 0.0 from -0.0, which are equal but divide differently.
    static bool SameValue(const duckdb::Value &original, const duckdb::Value &bound) {
        return duckdb::Value::NotDistinctFrom(original, bound) && original.ToString() == bound.ToString();
    }

    static bool SameFunction(const duckdb::BoundFunctionExpression &original,
                             const duckdb::BoundFunctionExpression &bound) {
        if (duckdb::BoundCastExpression::IsCast(original)) {
            return duckdb::BoundCastExpression::IsCast(bound) &&
                   duckdb::BoundCastExpression::IsTryCast(original) ==
                       duckdb::BoundCastExpression::IsTryCast(bound);
        }
        // Types are those of the children. Of the arithmetic of decimals, statistics decide only whether an
        // overflow that cannot happen is looked for.
        return original.Function().GetName() == bound.Function().GetName() &&
               (IsDecimalArithmetic(original) ||
                duckdb::FunctionData::Equals(original.BindInfo().get(), bound.BindInfo().get()));
    }

    const RequestSchema &schema_;
    const ColumnName &column_name_;
};

} // namespace

std::string RoundTripDifference(duckdb::ClientContext &context, const Expression &original,
                                const std::string &sql, const RequestSchema &schema,
                                const ColumnName &column_name) {
    try {
        auto binder = duckdb::Binder::CreateBinder(context);
        binder->bind_context.AddGenericBinding(binder->GenerateTableIndex(), duckdb::Identifier("object"),
                                               schema.names, schema.types);
        duckdb::WhereBinder expression_binder(*binder, context);
        expression_binder.target_type = duckdb::LogicalType::INVALID;
        auto parsed = ParseRequestExpression(sql);
        auto bound = expression_binder.Bind(parsed);
        for (const Expression *side : {&original, static_cast<const Expression *>(bound.get())}) {
            if (const Expression *foreign = FindForeignCall(*side)) {
                return foreign->ToString() + " calls a function that is not one of DuckDB's own";
            }
        }
        auto folded = original.Copy();
        for (auto *side : {&bound, &folded}) {
            FoldConstants(context, *side);
            ExpandBetween(*side);
        }
        Comparison comparison(schema, column_name);
        return comparison.Same(*folded, *bound) ? "" : comparison.difference;
    } catch (const duckdb::InterruptException &) {
        throw;
    } catch (const std::exception &error) {
        return duckdb::ErrorData(error).RawMessage();
    }
}

} // namespace rawduck_ceph
