//! Which paths may be shown to a database with restricted access.
#pragma once

#include "duckdb/main/config.hpp"

#include <string>

namespace rawduck_ceph {

//! Whether DuckDB's settings (enable_external_access, allowed_directories, allowed_paths,
//! disabled_filesystems) allow this database to access the path. `owner`: a ClientContext or a DatabaseInstance.
template <class OWNER> bool IsVisible(OWNER &owner, const std::string &path, duckdb::FileType type) {
    auto &config = duckdb::DBConfig::GetConfig(owner);
    return !config.file_system->IsDisabledForPath(path) && config.CanAccessFile(path, type);
}

} // namespace rawduck_ceph
