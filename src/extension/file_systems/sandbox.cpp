#include "extension/file_systems/sandbox.hpp"

#include "extension/file_systems/settings_cache.hpp"

#include "volume/names/path.hpp"

#include "common/text/text.hpp"
#include "target/target.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_data.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/main/settings.hpp"

#include <cstring>

namespace rawduck {

using duckdb::FileType;

namespace {

constexpr const char *LOCAL_FILE_SYSTEM = "LocalFileSystem";

//! Whether a path of ours leads to a disk of this machine, and not only into the memory of this process.
bool IsOnLocalDisk(const std::string &path) {
    return IsDirectPath(path) || (IsVolumePath(path) && !IsInProcess(path.substr(strlen(VOLUME_SCHEME))));
}

//! A target as the path of the directory that the volume is, without links.
std::string PathOfVolume(const std::string &target) {
    const bool on_disk = !target.empty() && target[0] == '/' && target.find('\0') == std::string::npos;
    return VOLUME_SCHEME + (on_disk ? ResolvedPath(target) : target);
}

} // namespace

Sandbox::Sandbox(duckdb::optional_ptr<duckdb::FileOpener> opener)
    : opener_(opener), database_(duckdb::FileOpener::TryGetDatabase(opener).get()) {}

Sandbox::Sandbox(duckdb::ClientContext &context)
    : Sandbox(duckdb::optional_ptr<duckdb::FileOpener>(duckdb::ClientData::Get(context).file_opener.get())) {}

std::string Sandbox::WhyDisabled(const std::string &path) const {
    auto &files = *database_->config.file_system;
    if (files.IsDisabledForPath(path)) {
        return "its file system has been disabled by configuration (disabled_filesystems)";
    }
    if (IsOnLocalDisk(path) && files.SubSystemIsDisabled(LOCAL_FILE_SYSTEM)) {
        return "File system LocalFileSystem has been disabled by configuration (disabled_filesystems), and "
               "this leads to a local disk";
    }
    return "";
}

bool Sandbox::IsAllowed(const std::string &path, FileType type) const {
    KeepSettingsReadable(*database_);
    return database_->config.CanAccessFile(path, type, opener_);
}

void Sandbox::Require(const std::string &path, FileType type, const std::string &written) const {
    if (!database_) {
        return;
    }
    const std::string disabled = WhyDisabled(path);
    if (!disabled.empty()) {
        throw duckdb::PermissionException("Cannot access \"%s\": %s", written, disabled);
    }
    if (!IsAllowed(path, type)) {
        throw duckdb::PermissionException(
            "Cannot access \"%s\": file system operations are disabled by configuration "
            "(enable_external_access), and it is not among the allowed_directories and allowed_paths",
            written);
    }
}

void Sandbox::RequireFile(const std::string &path) const {
    Require(path, FileType::FILE_TYPE_REGULAR, path);
}

void Sandbox::RequireDirectory(const std::string &path) const {
    Require(path, FileType::FILE_TYPE_DIR, path);
}

void Sandbox::RequireVolume(const std::string &target) const {
    Require(PathOfVolume(target), FileType::FILE_TYPE_DIR, VOLUME_SCHEME + target);
}

void Sandbox::RequireMachine(const std::string &function) const {
    if (!database_) {
        return;
    }
    const std::string any_device = std::string(VOLUME_SCHEME) + "/dev";
    std::string disabled = WhyDisabled(any_device);
    if (disabled.empty() && !duckdb::Settings::Get<duckdb::EnableExternalAccessSetting>(*database_)) {
        disabled = "it shows all devices of this machine, and external access has been disabled by "
                   "configuration (enable_external_access)";
    }
    if (!disabled.empty()) {
        throw duckdb::PermissionException("%s: %s", function, disabled);
    }
}

bool Sandbox::MayReachFile(const std::string &path) const {
    return !database_ || (WhyDisabled(path).empty() && IsAllowed(path, FileType::FILE_TYPE_REGULAR));
}

bool Sandbox::MayReachDirectory(const std::string &path) const {
    return !database_ || (WhyDisabled(path).empty() && IsAllowed(path, FileType::FILE_TYPE_DIR));
}

bool Sandbox::MaySeeVolume(const std::string &target) const {
    const std::string path = PathOfVolume(target);
    if (MayReachDirectory(path)) {
        return true;
    }
    if (!WhyDisabled(path).empty()) {
        return false;
    }
    for (auto &allowed : {database_->config.GetAllowedDirectories(), database_->config.GetAllowedPaths()}) {
        for (auto &place : allowed) {
            if (StartsWith(place, path + "/")) {
                return true;
            }
        }
    }
    return false;
}

} // namespace rawduck
