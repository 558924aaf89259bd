//! For every database of a process: what `LOAD` does for one, and early enough that DuckDB itself can open a
//! database on a volume, as the main one of its instance.
//!
//! A program that has DuckDB linked in registers what it links with it (duckdb_static_extension.h). The Python
//! package does the same with this object: two registrations, since file systems have to be there before a
//! database is opened, and functions need its catalog.
#include "extension/file_systems/errors.hpp"
#include "extension/file_systems/install.hpp"

#include "volume/names/path.hpp"

#include "duckdb.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/main/extension/extension_loader.hpp"
#include "duckdb/main/settings.hpp"
#include "duckdb_static_extension.h"

#include <string>

extern "C" void rawduck_duckdb_cpp_init(duckdb::ExtensionLoader &loader);

namespace {

using Callback = void (*)();

//! What DuckDB names the folder after: the database, or nothing where it is in memory.
constexpr const char *TEMPORARY_SUFFIX = ".tmp";

//! Where DuckDB puts temporary files unless it is told otherwise: beside the database. Not on a volume that is
//! only read, which other processes read too, and which must not be written for that. And where a relative path
//! follows "direct://", DuckDB takes its first name for a host's and ends it with a slash.
void CorrectTemporaryDirectory(duckdb::DBConfig &config) {
    const std::string &given = config.options.database_path;
    const bool on_volume = rawduck::IsVolumePath(given);
    auto &directory = config.options.temporary_directory;
    if ((!on_volume && !rawduck::IsDirectPath(given)) || directory != given + TEMPORARY_SUFFIX) {
        return;
    }
    const std::string path = given.substr(0, given.find_last_not_of('/') + 1);
    const bool is_read_only = config.options.access_mode == duckdb::AccessMode::READ_ONLY;
    directory = on_volume && is_read_only ? TEMPORARY_SUFFIX : path + TEMPORARY_SUFFIX;
    config.AddAllowedDirectory(directory);
}

//! A database in a sandbox may open its own files. DuckDB has allowed them already, but under the names they have
//! where no file system knows "direct://". Here they are allowed as it opens them and as the sandbox asks.
void AllowOwnFiles(duckdb::DatabaseInstance &database) {
    duckdb::DBConfig &config = database.config;
    const std::string &given = config.options.database_path;
    if (rawduck::IsDirectPath(given) &&
        !duckdb::Settings::Get<duckdb::EnableExternalAccessSetting>(database)) {
        config.AddAllowedDatabasePath(given);
        config.AddAllowedDatabasePath(config.file_system->CanonicalizePath(given));
    }
}

//! Of a path that cannot be one the error names what was given, not the temporary directory that follows from it.
void RequireVolumePath(const std::string &given) {
    if (rawduck::IsVolumePath(given)) {
        rawduck::Translated([&] { rawduck::CanonicalVolumePath(given); });
    }
}

void PrepareDatabase(duckdb::DatabaseInstance &database) {
    RequireVolumePath(database.config.options.database_path);
    rawduck::InstallFileSystems(database);
    CorrectTemporaryDirectory(database.config);
    AllowOwnFiles(database);
}

void Describe(duckdb_extension_descriptor &descriptor, const char *name) {
    descriptor.version = DUCKDB_EXTENSION_DESCRIPTOR_VERSION;
    descriptor.name = name;
    descriptor.extension_version = RAWDUCK_VERSION;
    descriptor.api_version = RAWDUCK_DUCKDB_VERSION;
}

int32_t DescribeFileSystems(duckdb_extension_descriptor *descriptor) {
    Describe(*descriptor, "rawduck_file_systems");
    descriptor->database_callback = reinterpret_cast<Callback>(&PrepareDatabase);
    return 0;
}

int32_t DescribeExtension(duckdb_extension_descriptor *descriptor) {
    Describe(*descriptor, "rawduck");
    descriptor->entry_cpp = reinterpret_cast<Callback>(&rawduck_duckdb_cpp_init);
    return 0;
}

} // namespace

//! Returns whether every database that is opened from now on has the extension: false where this DuckDB is
//! another release, for which nothing is registered, or where DuckDB refuses. Safe to call again.
extern "C" __attribute__((visibility("default"))) bool rawduck_register() {
    return std::string(duckdb::DuckDB::LibraryVersion()) == RAWDUCK_DUCKDB_VERSION &&
           duckdb_register_static_extension(&DescribeFileSystems) == 0 &&
           duckdb_register_static_extension(&DescribeExtension) == 0;
}
