#include "ceph/files/rados_file_system.hpp"

#include "ceph/files/query_interrupt.hpp"
#include "ceph/files/query_listings.hpp"
#include "ceph/files/query_pins.hpp"
#include "ceph/files/rados_connections.hpp"
#include "ceph/files/rados_file.hpp"
#include "ceph/rados/connection/rados_path.hpp"
#include "common/text/pattern.hpp"
#include "extension/file_systems/errors.hpp"

#include "duckdb/common/multi_file/multi_file_list.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/function/scalar/string_common.hpp"
#include "duckdb/logging/file_system_logger.hpp"
#include "duckdb/logging/log_type.hpp"
#include "duckdb/logging/logger.hpp"

#include <algorithm>
#include <set>

namespace rawduck_ceph {

using rawduck::MatchesPattern;
using rawduck::Translated;

using duckdb::FileHandle;
using duckdb::FileOpenFlags;
using duckdb::idx_t;
using duckdb::OpenFileInfo;
// Used by the macros of DuckDB's log.
using duckdb::FileSystemLogType;
using duckdb::Logger;

namespace {

//! A path and its pool.
struct Location {
    Location(const std::string &path, RadosFileSystem::Opener opener)
        : path(RadosPath::Parse(path)), pool(PoolOf(path, opener)) {}

    //! The prefix of the names of all objects in the path's directory; empty for the whole pool.
    std::string Prefix() const {
        return path.object.empty() || path.object.back() == '/' ? path.object : path.object + "/";
    }

    RadosPath path;
    std::shared_ptr<RadosPool> pool;
};

RadosFileHandle &FileOf(FileHandle &handle) {
    return handle.Cast<RadosFileHandle>();
}

duckdb::FileMetadata ToMetadata(const ObjectStatus &status) {
    duckdb::FileMetadata metadata;
    metadata.file_size = static_cast<int64_t>(status.size);
    metadata.last_modification_time = duckdb::timestamp_t(status.modified_s * 1000000);
    metadata.file_type = duckdb::FileType::FILE_TYPE_REGULAR;
    // The version alone is not unique: a pool that is created again under the same name starts over.
    metadata.version_tag = std::to_string(status.version) + "-" + std::to_string(status.modified_s);
    return metadata;
}

void RequireWritable(const std::string &path, FileOpenFlags flags) {
    if (flags.OpenForReading() || flags.OpenForAppending()) {
        throw Error(ErrorCode::UNSUPPORTED, path +
                                                ": objects are written whole, not changed in place; attach a "
                                                "database on Ceph with (READ_ONLY)");
    }
    if (!flags.CreateFileIfNotExists() && !flags.OverwriteExistingFile()) {
        throw Error(ErrorCode::UNSUPPORTED,
                    path + ": an object cannot be opened for writing without replacing it");
    }
}

bool HasObjectsBelow(const Location &location) {
    return !location.pool->List(location.Prefix(), 1).empty();
}

bool MatchesComponent(const std::string &component, const std::string &pattern) {
    return duckdb::Glob(component.c_str(), component.size(), pattern.c_str(), pattern.size());
}

//! The message lists some of the existing objects.
[[noreturn]] void ThrowNothingMatches(const std::string &pattern, RadosPool &pool) {
    constexpr size_t NAMES_SHOWN = 3;
    const auto names = pool.List("");
    std::string existing = std::to_string(names.size()) + " objects";
    for (size_t i = 0; i < std::min(NAMES_SHOWN, names.size()); i++) {
        existing += (i == 0 ? ", the first of them " : ", ") + names[i];
    }
    throw Error(ErrorCode::NOT_FOUND, "No files found that match the pattern \"" + pattern + "\": pool " +
                                          pool.Name() + " has " + existing);
}

} // namespace

bool RadosFileSystem::CanHandleFile(const std::string &path) {
    return IsRadosPath(path);
}

duckdb::unique_ptr<FileHandle> RadosFileSystem::OpenFile(const std::string &path, FileOpenFlags flags,
                                                         Opener opener) {
    flags.Verify();
    const InterruptScope scope(InterruptCheckOf(opener));
    auto handle = Translated([&]() -> duckdb::unique_ptr<RadosFileHandle> {
        const std::string object = RadosPath::ParseObject(path).object;
        if (flags.OpenForWriting()) {
            RequireWritable(path, flags);
        }
        auto pool = PoolOf(path, opener);
        ObjectStatus status;
        if (!flags.OpenForWriting()) {
            if (pool->TryStat(object, status)) {
                PinsOf(opener)->Pin(*pool, object, status.version);
                return duckdb::make_uniq<RadosFileHandle>(*this, path, flags, std::move(pool), object, status,
                                                          InterruptCheckOf(opener));
            }
            if (flags.ReturnNullIfNotExists()) {
                return nullptr;
            }
            throw Error(ErrorCode::NOT_FOUND, path + ": there is no such object; FROM glob('" + RADOS_SCHEME +
                                                  pool->Name() + "/**') lists those that there are");
        }
        if (flags.ExclusiveCreate() && pool->TryStat(object, status)) {
            if (flags.ReturnNullIfExists()) {
                return nullptr;
            }
            throw Error(ErrorCode::EXISTS, path + ": the object is there already");
        }
        return duckdb::make_uniq<RadosFileHandle>(*this, path, flags, std::move(pool), object,
                                                  flags.ExclusiveCreate());
    });
    if (handle && opener) {
        handle->TryAddLogger(*opener);
        DUCKDB_LOG_FILE_SYSTEM_OPEN((*handle));
    }
    return std::move(handle);
}

void RadosFileSystem::Read(FileHandle &handle, void *buffer, int64_t nr_bytes, idx_t location) {
    const auto length = static_cast<uint64_t>(nr_bytes);
    const uint64_t bytes = Translated([&] { return FileOf(handle).ReadAt(buffer, length, location); });
    if (bytes != length) {
        throw duckdb::IOException("%s: cannot read %llu bytes at %llu: the object ends after %llu of them",
                                  handle.path, length, location, bytes);
    }
    DUCKDB_LOG_FILE_SYSTEM_READ(handle, nr_bytes, location);
}

int64_t RadosFileSystem::Read(FileHandle &handle, void *buffer, int64_t nr_bytes) {
    auto &file = FileOf(handle);
    const uint64_t bytes =
        Translated([&] { return file.ReadAt(buffer, static_cast<uint64_t>(nr_bytes), file.position); });
    DUCKDB_LOG_FILE_SYSTEM_READ(handle, static_cast<int64_t>(bytes), file.position);
    file.position += bytes;
    return static_cast<int64_t>(bytes);
}

void RadosFileSystem::Write(FileHandle &handle, void *buffer, int64_t nr_bytes, idx_t location) {
    Translated([&] { FileOf(handle).WriteAt(buffer, static_cast<uint64_t>(nr_bytes), location); });
    DUCKDB_LOG_FILE_SYSTEM_WRITE(handle, nr_bytes, location);
}

int64_t RadosFileSystem::Write(FileHandle &handle, void *buffer, int64_t nr_bytes) {
    auto &file = FileOf(handle);
    Write(handle, buffer, nr_bytes, file.position);
    file.position += static_cast<uint64_t>(nr_bytes);
    return nr_bytes;
}

void RadosFileSystem::Truncate(FileHandle &handle, int64_t new_size) {
    Translated([&] { FileOf(handle).Resize(static_cast<uint64_t>(new_size)); });
}

void RadosFileSystem::FileSync(FileHandle &handle) {
    Translated([&] { FileOf(handle).Publish(); });
}

void RadosFileSystem::AbortFileWrite(FileHandle &handle) {
    FileOf(handle).Discard();
}

int64_t RadosFileSystem::GetFileSize(FileHandle &handle) {
    return static_cast<int64_t>(FileOf(handle).Status().size);
}

duckdb::timestamp_t RadosFileSystem::GetLastModifiedTime(FileHandle &handle) {
    return Stats(handle).last_modification_time;
}

std::string RadosFileSystem::GetVersionTag(FileHandle &handle) {
    return Stats(handle).version_tag;
}

duckdb::FileType RadosFileSystem::GetFileType(FileHandle &) {
    return duckdb::FileType::FILE_TYPE_REGULAR;
}

duckdb::FileMetadata RadosFileSystem::Stats(FileHandle &handle) {
    return ToMetadata(FileOf(handle).Status());
}

duckdb::optional<duckdb::FileMetadata> RadosFileSystem::GetStatsIfExists(const OpenFileInfo &file,
                                                                         Opener opener) {
    const InterruptScope scope(InterruptCheckOf(opener));
    return Translated([&]() -> duckdb::optional<duckdb::FileMetadata> {
        Location location(file.path, opener);
        ObjectStatus status;
        if (!location.path.object.empty() && location.pool->TryStat(location.path.object, status)) {
            return ToMetadata(status);
        }
        if (!HasObjectsBelow(location)) {
            return {};
        }
        duckdb::FileMetadata directory;
        directory.file_type = duckdb::FileType::FILE_TYPE_DIR;
        return directory;
    });
}

void RadosFileSystem::Seek(FileHandle &handle, idx_t location) {
    FileOf(handle).position = location;
}

void RadosFileSystem::Reset(FileHandle &handle) {
    Seek(handle, 0);
}

idx_t RadosFileSystem::SeekPosition(FileHandle &handle) {
    return FileOf(handle).position;
}

bool RadosFileSystem::FileExists(const std::string &path, Opener opener) {
    const InterruptScope scope(InterruptCheckOf(opener));
    return Translated([&] {
        Location location(path, opener);
        ObjectStatus status;
        return !location.path.object.empty() && location.pool->TryStat(location.path.object, status);
    });
}

void RadosFileSystem::RemoveFile(const std::string &path, Opener opener) {
    if (!TryRemoveFile(path, opener)) {
        throw duckdb::IOException("%s: cannot remove it: there is no such object", path);
    }
}

bool RadosFileSystem::TryRemoveFile(const std::string &path, Opener opener) {
    return Translated([&] { return PoolOf(path, opener)->Remove(RadosPath::ParseObject(path).object); });
}

bool RadosFileSystem::DirectoryExists(const std::string &path, Opener opener) {
    const InterruptScope scope(InterruptCheckOf(opener));
    return Translated([&] { return HasObjectsBelow(Location(path, opener)); });
}

void RadosFileSystem::CreateDirectory(const std::string &path, Opener opener) {
    CreateDirectoryExtended(path, {}, opener);
}

bool RadosFileSystem::CreateDirectoryExtended(const std::string &path, const duckdb::CreateDirectoryOptions &,
                                              Opener opener) {
    // There is nothing to create, but a missing pool is reported before anything is written.
    Translated([&] { PoolOf(path, opener); });
    return true;
}

void RadosFileSystem::RemoveDirectory(const std::string &path, Opener opener) {
    RemoveDirectoryExtended(path, {duckdb::RemoveDirectoryMode::RECURSIVE}, opener);
}

bool RadosFileSystem::RemoveDirectoryExtended(const std::string &path,
                                              const duckdb::RemoveDirectoryOptions &options, Opener opener) {
    return Translated([&] {
        Location location(path, opener);
        if (options.mode == duckdb::RemoveDirectoryMode::SINGLE) {
            return !HasObjectsBelow(location); // without objects below, it does not exist
        }
        for (auto &name : location.pool->List(location.Prefix())) {
            location.pool->Remove(name);
        }
        return true;
    });
}

bool RadosFileSystem::ListFiles(const std::string &path,
                                const std::function<void(const std::string &, bool)> &callback,
                                duckdb::FileOpener *opener) {
    std::set<std::pair<std::string, bool>> entries; // collected first: the callback may call this file system
    Translated([&] {
        Location location(path, opener);
        const std::string prefix = location.Prefix();
        for (auto &name : location.pool->List(prefix)) {
            const size_t slash = name.find('/', prefix.size());
            const bool is_directory = slash != std::string::npos;
            entries.emplace(name.substr(prefix.size(), is_directory ? slash - prefix.size() : slash),
                            is_directory);
        }
    });
    for (auto &entry : entries) {
        callback(entry.first, entry.second);
    }
    return !entries.empty();
}

duckdb::unique_ptr<duckdb::MultiFileList>
RadosFileSystem::GlobFilesExtended(const std::string &pattern, const duckdb::FileGlobInput &input,
                                   Opener opener) {
    duckdb::vector<OpenFileInfo> result;
    const InterruptScope scope(InterruptCheckOf(opener));
    Translated([&] {
        Location location(pattern, opener);
        const std::string &wanted = location.path.object;
        if (!HasGlob(wanted)) {
            ObjectStatus status;
            if (!wanted.empty() && location.pool->TryStat(wanted, status)) {
                result.emplace_back(pattern);
            }
            return;
        }
        const std::string prefix = wanted.substr(0, wanted.find_first_of("*?["));
        const auto components = duckdb::StringUtil::Split(wanted, "/");
        for (auto &name : NamesForQuery(location.pool, prefix, opener)) {
            if (MatchesPattern(duckdb::StringUtil::Split(name, "/"), components, MatchesComponent)) {
                result.emplace_back(RadosPath{location.path.pool, name}.ToString());
            }
        }
        if (result.empty() && !input.AllowsEmpty()) {
            ThrowNothingMatches(pattern, *location.pool);
        }
    });
    return duckdb::make_uniq<duckdb::SimpleMultiFileList>(std::move(result));
}

} // namespace rawduck_ceph
