//! The argument of functions that work on a volume as a whole.
#pragma once

#include "extension/sql/row_function.hpp"

namespace rawduck {

//! A signature with one argument, the target.
duckdb::FunctionSignature TargetSignature();

//! The target that was given. Throws when DuckDB's settings do not allow all that is on it.
std::string AllowedTarget(duckdb::ClientContext &context, const Arguments &arguments);

} // namespace rawduck
