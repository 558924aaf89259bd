//! A batch in words, for Python.
#pragma once

#include "gpu/pipeline/batch.hpp"

#include <string>

namespace rawduck::gpu {

//! JSON: rows, columns (name, format, nulls), and report.
std::string DescribeBatch(const Batch &batch);

} // namespace rawduck::gpu
