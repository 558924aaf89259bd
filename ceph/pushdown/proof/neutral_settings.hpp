//! Settings of DuckDB and what they do to a pushed query. The object class has none of them set, so a query is
//! pushed only where each setting is known not to change what an expression or a Parquet file means, or has the
//! value with which the class works.
#pragma once

#include "duckdb/main/client_context.hpp"

#include <string>

namespace rawduck_ceph {

//! Whether the setting is in one of the tables: a test requires it of every setting of DuckDB.
bool IsClassifiedSetting(const std::string &name);

//! "the setting x is 'y', which changes …" for the first setting that does not allow pushing; empty when all do.
//! A setting that is in no table, such as one of an unknown extension, does not allow it unless it has its
//! default.
std::string SettingInTheWay(duckdb::ClientContext &context);

} // namespace rawduck_ceph
