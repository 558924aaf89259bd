//! How a column of a table comes out of a scan: its type in Arrow's and DLPack's terms.
#pragma once

#include "gpu/pipeline/batch.hpp"
#include "gpu/plan/table_plan.hpp"

#include <optional>
#include <string>

namespace rawduck::gpu {

enum class DecimalForm { ARROW, INT64, FLOAT64 };

struct OutputOptions {
    DecimalForm decimals = DecimalForm::ARROW; //!< INT64: unscaled; FLOAT64: divided by the power of ten
    std::optional<double> null_value; //!< for DLPack, which has no NULL; unset: such columns are refused
};

//! Throws InvalidInputException for a type that has no place in a batch, and says what to do about it, or that cannot hold the value for NULL.
OutputColumn DescribeOutput(const TableColumn &column, const OutputOptions &options, const char *what_to_do);

} // namespace rawduck::gpu
