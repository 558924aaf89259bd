//! DuckDB's allocator, served from BufferMemory.
#pragma once

#include "duckdb/main/database.hpp"

#include <string>

namespace rawduck {

//! Lets this instance allocate from BufferMemory, or not. What it allocated before stays where it is, and is freed
//! as before. Where that cannot be, nothing changes, and UsesBufferMemory says why. Thread-safe; other threads may
//! allocate meanwhile.
void UseBufferMemory(duckdb::DatabaseInstance &database, bool on);

//! Whether the instance allocates from BufferMemory. Otherwise `why_not` says why.
bool UsesBufferMemory(duckdb::DatabaseInstance &database, std::string &why_not);

} // namespace rawduck
