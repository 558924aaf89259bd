#include "gpu/scan/output_column.hpp"

#include "gpu/plan/segments.hpp"

#include "duckdb/common/exception.hpp"
#include "duckdb/common/types/value.hpp"

#include <cmath>
#include <cstring>
#include <limits>

namespace rawduck::gpu {
namespace {

using duckdb::LogicalTypeId;

constexpr uint8_t SIGNED = 0, UNSIGNED = 1, FLOAT = 2, BOOLEAN = 6;

struct Form {
    const char *arrow_format;
    NumberType number;
    const char *why_no_number;
};

constexpr const char *NO_TEXT = "text has no place in DLPack; take it by Arrow";
constexpr const char *NO_TIME = "DLPack has no 128 bits; take it by Arrow";

//! Types whose form follows from nothing else. Dates and times are their numbers to DLPack, as stored.
Form FormOf(LogicalTypeId type) {
    switch (type) {
    case LogicalTypeId::BOOLEAN:
        return {"b", {BOOLEAN, 8}, ""};
    case LogicalTypeId::TINYINT:
        return {"c", {SIGNED, 8}, ""};
    case LogicalTypeId::UTINYINT:
        return {"C", {UNSIGNED, 8}, ""};
    case LogicalTypeId::SMALLINT:
        return {"s", {SIGNED, 16}, ""};
    case LogicalTypeId::USMALLINT:
        return {"S", {UNSIGNED, 16}, ""};
    case LogicalTypeId::INTEGER:
        return {"i", {SIGNED, 32}, ""};
    case LogicalTypeId::UINTEGER:
        return {"I", {UNSIGNED, 32}, ""};
    case LogicalTypeId::BIGINT:
        return {"l", {SIGNED, 64}, ""};
    case LogicalTypeId::UBIGINT:
        return {"L", {UNSIGNED, 64}, ""};
    case LogicalTypeId::HUGEINT:
        return {"d:38,0", {}, NO_TIME};
    case LogicalTypeId::FLOAT:
        return {"f", {FLOAT, 32}, ""};
    case LogicalTypeId::DOUBLE:
        return {"g", {FLOAT, 64}, ""};
    case LogicalTypeId::DATE:
        return {"tdD", {SIGNED, 32}, ""};
    case LogicalTypeId::TIME:
        return {"ttu", {SIGNED, 64}, ""};
    case LogicalTypeId::TIMESTAMP:
        return {"tsu:", {SIGNED, 64}, ""};
    case LogicalTypeId::TIMESTAMP_TZ:
        return {"tsu:UTC", {SIGNED, 64}, ""};
    case LogicalTypeId::TIMESTAMP_SEC:
        return {"tss:", {SIGNED, 64}, ""};
    case LogicalTypeId::TIMESTAMP_MS:
        return {"tsm:", {SIGNED, 64}, ""};
    case LogicalTypeId::TIMESTAMP_NS:
        return {"tsn:", {SIGNED, 64}, ""};
    case LogicalTypeId::VARCHAR:
        return {"u", {}, NO_TEXT};
    case LogicalTypeId::BLOB:
        return {"z", {}, NO_TEXT};
    case LogicalTypeId::UUID:
        return {"w:16", {}, NO_TIME};
    default:
        return {nullptr, {}, ""};
    }
}

void DescribeDecimal(const duckdb::LogicalType &type, DecimalForm form, OutputColumn &output) {
    const auto digits = duckdb::DecimalType::GetWidth(type), scale = duckdb::DecimalType::GetScale(type);
    if (form == DecimalForm::FLOAT64) {
        output.arrow_format = "g";
        output.number = {FLOAT, 64};
        output.conversion = Conversion::TO_FLOAT64;
        output.width = sizeof(double);
        output.scale = scale;
        return;
    }
    if (form == DecimalForm::INT64) {
        if (output.stored_width > sizeof(int64_t)) {
            throw duckdb::InvalidInputException("column %s is %s, which 64 bits cannot hold; use "
                                                "decimal=\"float64\" or decimal=\"arrow\"",
                                                output.name, type.ToString());
        }
        output.arrow_format = "l";
        output.number = {SIGNED, 64};
        output.conversion = output.stored_width == sizeof(int64_t) ? Conversion::NONE : Conversion::TO_INT64;
        output.width = sizeof(int64_t);
        return;
    }
    if (output.stored_width == sizeof(int16_t)) {
        output.conversion = Conversion::INT16_TO_INT32;
        output.width = sizeof(int32_t);
    }
    output.arrow_format = "d:" + std::to_string(digits) + "," + std::to_string(scale) +
                          (output.width == 16 ? "" : "," + std::to_string(8 * output.width));
    output.why_no_number = "DLPack has no decimals; take it with decimal=\"float64\" or decimal=\"int64\"";
}

template <class T> bool Store(double value, std::array<uint8_t, 8> &bytes) {
    // The comparison in floating point: what is beyond the type's range must not be converted.
    if constexpr (std::is_integral_v<T>) {
        if (std::floor(value) != value || value < static_cast<double>(std::numeric_limits<T>::min()) ||
            value >= std::ldexp(1.0, std::numeric_limits<T>::digits)) {
            return false;
        }
    }
    if constexpr (std::is_same_v<T, float>) {
        // What is not a number, or infinite, is the same in both.
        if (std::isfinite(value) && (std::abs(value) > std::numeric_limits<float>::max() ||
                                     static_cast<double>(static_cast<float>(value)) != value)) {
            return false;
        }
    }
    const T stored = static_cast<T>(value);
    std::memcpy(bytes.data(), &stored, sizeof(stored));
    return true;
}

bool StoreNumber(double value, NumberType type, std::array<uint8_t, 8> &bytes) {
    if (type.code == FLOAT) {
        return type.bits == 32 ? Store<float>(value, bytes) : Store<double>(value, bytes);
    }
    if (type.code == BOOLEAN) {
        bytes[0] = value != 0;
        return value == 0 || value == 1;
    }
    const bool is_signed = type.code == SIGNED;
    switch (type.bits) {
    case 8:
        return is_signed ? Store<int8_t>(value, bytes) : Store<uint8_t>(value, bytes);
    case 16:
        return is_signed ? Store<int16_t>(value, bytes) : Store<uint16_t>(value, bytes);
    case 32:
        return is_signed ? Store<int32_t>(value, bytes) : Store<uint32_t>(value, bytes);
    default:
        return is_signed ? Store<int64_t>(value, bytes) : Store<uint64_t>(value, bytes);
    }
}

} // namespace

OutputColumn DescribeOutput(const TableColumn &column, const OutputOptions &options, const char *what_to_do) {
    OutputColumn output;
    output.name = column.name;
    const auto type = column.type.id();
    const Form form = FormOf(type);
    if (!column.kind || (!form.arrow_format && type != LogicalTypeId::DECIMAL)) {
        throw duckdb::InvalidInputException("column %s is %s, which has no place in a batch; %s", column.name,
                                            column.type.ToString(), what_to_do);
    }
    output.stored_width = output.width = WidthOf(*column.kind);
    if (type == LogicalTypeId::DECIMAL) {
        DescribeDecimal(column.type, options.decimals, output);
    } else {
        output.arrow_format = form.arrow_format;
        output.number = form.number;
        output.why_no_number = form.why_no_number;
        output.conversion = type == LogicalTypeId::UUID ? Conversion::UUID_BYTES : Conversion::NONE;
    }
    if (options.null_value && output.number.bits != 0) {
        output.null_value.emplace();
        if (!StoreNumber(*options.null_value, output.number, *output.null_value)) {
            throw duckdb::InvalidInputException(
                "column %s is %s, which cannot hold the value %s given for NULL; give one that every column "
                "can hold, or take this one on its own",
                column.name, column.type.ToString(), duckdb::Value::DOUBLE(*options.null_value).ToString());
        }
    }
    return output;
}

} // namespace rawduck::gpu
