#include "ceph/files/rados_file_system.hpp"

#include "ceph/files/query_interrupt.hpp"
#include "ceph/files/query_listings.hpp"
#include "ceph/files/query_outputs.hpp"
#include "ceph/files/query_pins.hpp"
#include "ceph/files/rados_connections.hpp"
#include "ceph/files/rados_file.hpp"
#include "ceph/files/visible.hpp"
#include "ceph/rados/connection/rados_path.hpp"
#include "common/text/pattern.hpp"
#include "extension/file_systems/errors.hpp"

#include "duckdb/common/multi_file/multi_file_list.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/function/scalar/string_common.hpp"
#include "duckdb/logging/file_system_logger.hpp"
#include "duckdb/logging/log_type.hpp"
#include "duckdb/logging/logger.hpp"
#include "duckdb/main/database.hpp"

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
    if (!RadosPath::ParseObject(path).HasPlainName()) {
        throw Error(ErrorCode::INVALID,
                    path + ": an object whose name has an empty part, \".\" or \"..\" between "
                           "slashes, or a \"\\\", is not written: DuckDB would take its path "
                           "for that of another one");
    }
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

//! Whether DuckDB makes of a directory and a name in it the path of `object`. It joins them by rules for files: a
//! name that is empty, "." or "..", or has a "\", leads elsewhere, and so does every name in a directory with a "?".
bool Joins(RadosFileSystem &files, const std::string &directory, const std::string &name,
           const RadosPath &object) {
    return name.find('\\') == std::string::npos && files.JoinPath(directory, name) == object.ToString();
}

bool MatchesComponent(const std::string &component, const std::string &pattern) {
    return duckdb::Glob(component.c_str(), component.size(), pattern.c_str(), pattern.size());
}

//! The message lists some of the existing objects that the database may access.
[[noreturn]] void ThrowNothingMatches(const std::string &pattern, RadosPool &pool,
                                      RadosFileSystem::Opener opener) {
    constexpr size_t NAMES_SHOWN = 3;
    auto names = pool.List("");
    std::string kind = " objects";
    auto database = duckdb::FileOpener::TryGetDatabase(opener);
    if (database && !IsVisible(*database, RADOS_SCHEME + pool.Name(), duckdb::FileType::FILE_TYPE_DIR)) {
        auto is_hidden = [&](const std::string &name) {
            const std::string path = RadosPath{pool.Name(), name}.ToString();
            return !IsVisible(*database, path, duckdb::FileType::FILE_TYPE_REGULAR);
        };
        names.erase(std::remove_if(names.begin(), names.end(), is_hidden), names.end());
        kind += " that this database may access";
    }
    std::string existing = std::to_string(names.size()) + kind;
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
                                                  flags.ExclusiveCreate(), QueryOutputs::OfQuery(opener));
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

void RadosFileSystem::RemoveFiles(const duckdb::vector<std::string> &paths, Opener opener) {
    auto outputs = QueryOutputs::Of(opener);
    for (auto &path : paths) {
        if (!outputs || outputs->TakeListed(path)) {
            TryRemoveFile(path, opener);
            continue;
        }
        try {
            outputs->RemovePublished(path);
        } catch (const Error &) {
            // Of a COPY that has failed with another error. DuckDB would go on to remove the object by its name.
        }
    }
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
    Translated([&] {
        const Location location(path, opener);
        const std::string name = "x"; // any one
        if (!Joins(*this, path, name, {location.path.pool, location.Prefix() + name})) {
            throw Error(ErrorCode::INVALID,
                        path + ": DuckDB would write objects below another prefix, because this "
                               "one has an empty part, \".\" or \"..\" between slashes, or a "
                               "\"\\\" or \"?\"");
        }
    });
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
    auto outputs = QueryOutputs::OfQuery(opener);
    Translated([&] {
        const InterruptScope scope(InterruptCheckOf(opener));
        Location location(path, opener);
        const std::string prefix = location.Prefix();
        for (auto &name : location.pool->List(prefix)) {
            const size_t slash = name.find('/', prefix.size());
            const bool is_directory = slash != std::string::npos;
            const RadosPath object{location.path.pool, name.substr(0, slash)};
            const std::string entry = object.object.substr(prefix.size());
            if (!entries.emplace(entry, is_directory).second) {
                continue;
            }
            if (!Joins(*this, path, entry, object)) {
                const std::string found = RadosPath{location.path.pool, name}.ToString();
                throw Error(ErrorCode::EXISTS,
                            found +
                                ": there is an object of this name, to which no path of DuckDB "
                                "leads; `rados -p " +
                                location.path.pool + " rm '" + name + "'` removes it");
            }
            if (outputs && !is_directory) {
                outputs->AddListed(object.ToString());
            }
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
            ThrowNothingMatches(pattern, *location.pool, opener);
        }
    });
    return duckdb::make_uniq<duckdb::SimpleMultiFileList>(std::move(result));
}

} // namespace rawduck_ceph
