//! What a database needs before it opens its first file: the file systems and their settings.
#pragma once

#include "duckdb/main/database.hpp"

namespace rawduck {

//! Safe to call again: a database that has them keeps them. Throws where a setting that the database was opened
//! with is not valid.
void InstallFileSystems(duckdb::DatabaseInstance &database);

} // namespace rawduck
