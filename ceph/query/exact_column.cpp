#include "ceph/query/exact_column.hpp"

#include "duckdb/common/exception.hpp"
#include "duckdb/function/scalar_function.hpp"
#include "duckdb/main/extension/extension_loader.hpp"
#include "duckdb/planner/expression/bound_cast_expression.hpp"

namespace rawduck_ceph {

namespace {

duckdb::unique_ptr<duckdb::Expression> Bind(duckdb::FunctionBindExpressionInput &input) {
    // A name that no column has may mean something else to the binder: a field of a structure, or a constant.
    if (input.children[1]->GetExpressionClass() != duckdb::ExpressionClass::BOUND_COLUMN_REF) {
        throw duckdb::InvalidInputException("%s is not a column of the object",
                                            input.children[1]->ToString());
    }
    const auto wanted = input.children[0]->GetReturnType();
    const auto stored = input.children[1]->GetReturnType();
    if (!IsLosslessCast(stored, wanted)) {
        throw duckdb::InvalidInputException("a column is stored as %s, the query has bound %s",
                                            stored.ToString(), wanted.ToString());
    }
    auto column =
        duckdb::BoundCastExpression::AddCastToType(input.context, std::move(input.children[1]), wanted);
    return duckdb::Expression::PreserveReturnType(wanted, std::move(column));
}

void NeverCalled(duckdb::DataChunk &, duckdb::ExpressionState &, duckdb::Vector &) {
    throw duckdb::InternalException("rawduck_exact is replaced when it is bound");
}

//! Digits before the decimal point that the integers of a type need.
uint8_t IntegerDigits(const duckdb::LogicalType &type) {
    uint8_t width = 0, scale = 0;
    return type.GetDecimalProperties(width, scale) ? width : UINT8_MAX;
}

bool IsLosslessInteger(const duckdb::LogicalType &from, const duckdb::LogicalType &to) {
    const bool from_signed = from.IsSigned(), to_signed = to.IsSigned();
    const auto from_bytes = duckdb::GetTypeIdSize(from.InternalType());
    const auto to_bytes = duckdb::GetTypeIdSize(to.InternalType());
    return from_signed == to_signed ? from_bytes <= to_bytes : to_signed && from_bytes < to_bytes;
}

} // namespace

bool IsLosslessCast(const duckdb::LogicalType &from, const duckdb::LogicalType &to) {
    using duckdb::DecimalType;
    using duckdb::LogicalTypeId;
    if (from == to) {
        return true;
    }
    if (from.HasAlias() || to.HasAlias()) {
        return false;
    }
    if (from.IsIntegral() && to.IsIntegral()) {
        return IsLosslessInteger(from, to);
    }
    if (to.id() == LogicalTypeId::DECIMAL && from.id() == LogicalTypeId::DECIMAL) {
        const int from_scale = DecimalType::GetScale(from), to_scale = DecimalType::GetScale(to);
        return from_scale <= to_scale &&
               DecimalType::GetWidth(from) - from_scale <= DecimalType::GetWidth(to) - to_scale;
    }
    if (to.id() == LogicalTypeId::DECIMAL && from.IsIntegral()) {
        return IntegerDigits(from) <= DecimalType::GetWidth(to) - DecimalType::GetScale(to);
    }
    return from.id() == LogicalTypeId::FLOAT && to.id() == LogicalTypeId::DOUBLE;
}

void RegisterExactColumn(duckdb::DatabaseInstance &database) {
    duckdb::ScalarFunction function(duckdb::Identifier(EXACT_COLUMN),
                                    {duckdb::LogicalType::ANY, duckdb::LogicalType::ANY},
                                    duckdb::LogicalType::ANY, NeverCalled);
    function.SetNullHandling(duckdb::FunctionNullHandling::SPECIAL_HANDLING);
    function.SetBindExpressionCallback(Bind);
    duckdb::ExtensionLoader(database, "rawduck_class").RegisterFunction(function);
}

} // namespace rawduck_ceph
