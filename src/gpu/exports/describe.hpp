//! A batch in words, for Python.
#pragma once

#include "gpu/pipeline/batch.hpp"

#include <string>

namespace rawduck::gpu {

//! JSON: rows, device, and columns (name, format, nulls).
std::string DescribeBatch(const Batch &batch);
//! JSON: what was done for it. With each row group in it, long: for those who ask.
std::string DescribeReport(const Batch &batch);

} // namespace rawduck::gpu
