//! Which functions are DuckDB's own. Everybody may add overloads to them (create_function in Python), which the class
//! does not have: it would call another overload of the same name.
#pragma once

#include "duckdb/function/scalar_function.hpp"

namespace duckdb {
class DatabaseInstance;
}

namespace rawduck_ceph {

//! Notes the functions with which the database has started. An overload that another extension in C++ has added before
//! counts as well: DuckDB does not tell it from those of its own extensions.
void NoteBuiltInFunctions(duckdb::DatabaseInstance &database);

//! Whether it was bound from one of the functions that were noted, of any database of the process: all have the same.
bool IsBuiltIn(const duckdb::BoundScalarFunction &function);

} // namespace rawduck_ceph
