//! The extension's settings: one table, from which they are registered, checked when they are set, and read
//! where a file is opened.
#pragma once

#include "volume/mount/options.hpp"

#include "duckdb/common/file_opener.hpp"

namespace duckdb {
class ClientContext;
class DatabaseInstance;
} // namespace duckdb

namespace rawduck {

//! What the settings configure.
struct OpenOptions {
    MountOptions mount;   //!< the volume, or the file behind direct://
    bool prefetch = true; //!< the handle: whether DuckDB reads ahead in scans of it
};

//! Checks what the database was opened with, such as duckdb.connect(config={'nvme_engine': 'posix'}).
void RegisterSettings(duckdb::DatabaseInstance &database);

//! What the settings of the session or database behind `opener` say now; the defaults without one.
OpenOptions OpenOptionsOf(duckdb::optional_ptr<duckdb::FileOpener> opener);
//! Of those, what concerns the volume.
//! Of the query that runs; not to be called after its end.
Interrupted InterruptedOf(const duckdb::ClientContext &context);
//! With that of the query, where there is one.
MountOptions MountOptionsOf(duckdb::optional_ptr<duckdb::FileOpener> opener);

} // namespace rawduck
