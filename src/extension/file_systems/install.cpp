#include "extension/file_systems/install.hpp"

#include "extension/file_systems/direct_file_system.hpp"
#include "extension/file_systems/nvme_file_system.hpp"
#include "extension/file_systems/settings.hpp"

#include <algorithm>

namespace rawduck {

void InstallFileSystems(duckdb::DatabaseInstance &database) {
    // Not GetFileSystem(): a database that is being opened has none yet.
    auto &files = *database.config.file_system;
    auto nvme = duckdb::make_uniq<NvmeFileSystem>();
    const auto installed = files.ListSubSystems();
    if (std::find(installed.begin(), installed.end(), nvme->GetName()) != installed.end()) {
        return;
    }
    files.RegisterSubSystem(std::move(nvme));
    files.RegisterSubSystem(duckdb::make_uniq<DirectFileSystem>());
    RegisterSettings(database);
}

} // namespace rawduck
