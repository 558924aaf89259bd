//! Registers the extension's settings with DuckDB.
#pragma once

namespace duckdb {
class ExtensionLoader;
}

namespace rawduck {

void RegisterSettings(duckdb::ExtensionLoader &loader);

} // namespace rawduck
