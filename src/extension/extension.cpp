//! The extension's entry point: registers everything, does nothing else.
#include "extension/file_systems/install.hpp"
#include "extension/file_systems/settings_cache.hpp"
#include "extension/sql/functions.hpp"
#include "gpu/sql/functions.hpp"

#include "duckdb/main/database.hpp"
#include "duckdb/main/extension/extension_loader.hpp"

extern "C" __attribute__((visibility("default"))) void
rawduck_duckdb_cpp_init(duckdb::ExtensionLoader &loader) {
    // The static form brings its own copy of DuckDB, the host form takes the host's; both must be the one
    // whose headers this was compiled with.
    if (std::string(duckdb::DuckDB::LibraryVersion()) != RAWDUCK_DUCKDB_VERSION) {
        throw duckdb::InvalidInputException("rawduck was built for DuckDB %s, but this is DuckDB %s",
                                            RAWDUCK_DUCKDB_VERSION, duckdb::DuckDB::LibraryVersion());
    }
    rawduck::KeepSettingsReadable(loader.GetDatabaseInstance());
    loader.SetDescription(
        "DuckDB directly on raw NVMe and block devices (nvme://), or past the page cache of "
        "ordinary files (direct://)");
    rawduck::InstallFileSystems(loader.GetDatabaseInstance());
    rawduck::RegisterFunctions(loader);
    rawduck::gpu::RegisterSegmentsFunction(loader);
    rawduck::gpu::RegisterOpenFunction(loader);
    rawduck::gpu::RegisterQueryFunction(loader);
}
