//! The argument of functions that work on a volume as a whole, and others that name one.
#pragma once

#include "extension/sql/row_function.hpp"

namespace rawduck {

//! A signature with one argument, the target.
duckdb::FunctionSignature TargetSignature();

//! What names a target, as on the command line: nvme://<target> does, too. Throws where it names none.
std::string TargetOf(const std::string &text);

//! The target that was given. Throws when DuckDB's settings do not allow all that is on it.
std::string AllowedTarget(duckdb::ClientContext &context, const Arguments &arguments);

} // namespace rawduck
