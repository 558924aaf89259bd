//! A function for the object class only: rawduck_exact(NULL::type, column) is the column, as the type. Binding it
//! fails unless the stored type is this one, or is cast to it without loss. What reading does with a list of
//! objects of other types depends on settings and on the types of all of them, so the client reads then.
#pragma once

#include "duckdb/main/database.hpp"

namespace rawduck_ceph {

constexpr const char *EXACT_COLUMN = "rawduck_exact";

void RegisterExactColumn(duckdb::DatabaseInstance &database);

//! Whether every value of `from` is a value of `to`, and means the same in every comparison and function.
bool IsLosslessCast(const duckdb::LogicalType &from, const duckdb::LogicalType &to);

} // namespace rawduck_ceph
