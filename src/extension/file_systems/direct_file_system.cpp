#include "extension/file_systems/direct_file_system.hpp"

#include "direct/direct_file.hpp"
#include "direct/rename_file.hpp"
#include "extension/file_systems/attach/seen_headers.hpp"
#include "extension/file_systems/copy/replaced_files.hpp"
#include "extension/file_systems/errors.hpp"
#include "extension/file_systems/sandbox.hpp"
#include "extension/file_systems/settings.hpp"
#include "target/directory_entry.hpp"
#include "volume/names/path.hpp"

#include "duckdb/common/multi_file/multi_file_list.hpp"
#include "volume/names/file_name.hpp"
#include "volume/names/snapshot_name.hpp"

#include <optional>
#include <sys/stat.h>

namespace rawduck {

using duckdb::FileOpener;
using duckdb::FileOpenFlags;
using duckdb::FileSystem;
using duckdb::OpenFileInfo;

namespace {

//! The path as the local file system knows it: without the scheme, "~" still in it.
std::string LocalPath(const std::string &path) {
    return Translated([&] { return StripDirectScheme(path); });
}

std::string AbsolutePath(const std::string &path, DirectFileSystem::Opener opener) {
    const std::string expanded = FileSystem::ExpandPath(LocalPath(path), opener);
    return expanded[0] == '/' ? expanded : FileSystem::GetWorkingDirectory() + "/" + expanded;
}

//! The absolute path of a file, once DuckDB's settings are found to allow what it leads to.
std::string FilePath(const std::string &path, DirectFileSystem::Opener opener) {
    std::string absolute = AbsolutePath(path, opener);
    Sandbox(opener).RequireFile(DIRECT_SCHEME + absolute);
    return absolute;
}

std::string DirectoryPath(const std::string &path, DirectFileSystem::Opener opener) {
    std::string absolute = AbsolutePath(path, opener);
    Sandbox(opener).RequireDirectory(DIRECT_SCHEME + absolute);
    return absolute;
}

MountOptions DirectOptionsOf(DirectFileSystem::Opener opener) {
    MountOptions options = MountOptionsOf(opener);
    options.io.placement = PlacementRequest(); // a file system decides for itself where it puts a file
    return options;
}

//! Whoever has a file locked goes on writing to it, and what is written would be lost. DuckDB closes its own
//! before it replaces them.
std::unique_ptr<TargetLock> LockReplaced(const std::string &path) {
    struct stat status;
    const bool is_file = stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
    if (!is_file) {
        return nullptr;
    }
    auto lock = std::make_unique<TargetLock>(ResolveTarget(path), TargetLock::Mode::EXCLUSIVE);
    RequireNoVolume(path);
    return lock;
}

//! What was opened, or null. A log is read under the lock.
void LookAtHeaders(StorageFile *opened, const std::string &path, FileOpenFlags flags,
                   DirectFileSystem::Opener opener) {
    if (!DatabaseOfLog(path).empty()) {
        return;
    }
    const auto headers = [&] { return opened ? HeadersOf(*opened) : ""; };
    if (flags.Lock() != duckdb::FileLockType::NO_LOCK) {
        RequireSeenHeaders(opener, path, flags.CreateFileIfNotExists(), headers);
    } else if (flags.ReturnNullIfNotExists()) {
        RememberHeaders(opener, path, headers);
    }
}

} // namespace

DirectFileSystem::DirectFileSystem() : local_(FileSystem::CreateLocal()) {}

bool DirectFileSystem::CanHandleFile(const std::string &path) {
    return IsDirectPath(path);
}

std::string DirectFileSystem::CanonicalizePath(const std::string &path, Opener opener) {
    return DIRECT_SCHEME + ResolvedPath(AbsolutePath(path, opener));
}

duckdb::unique_ptr<duckdb::FileHandle> DirectFileSystem::OpenFile(const std::string &path,
                                                                  FileOpenFlags flags, Opener opener) {
    const std::string absolute = FilePath(path, opener);
    const OpenMode mode = OpenModeOf(flags, absolute);
    RequireOwnDatabase(path, mode);
    auto file = Translated([&] {
        if (mode.create) {
            RequireReplaceable(opener, absolute);
        }
        if (mode.truncate) {
            RequireNoVolume(absolute);
        }
        auto opened =
            OpenOrNull(flags, [&] { return DirectFile::Open(absolute, mode, DirectOptionsOf(opener)); });
        LookAtHeaders(opened.get(), absolute, flags, opener);
        return opened;
    });
    return MakeHandle(path, flags, std::move(file), opener);
}

duckdb::optional<duckdb::FileMetadata> DirectFileSystem::GetStatsIfExists(const OpenFileInfo &file,
                                                                          Opener opener) {
    const std::string absolute = FilePath(file.path, opener);
    auto metadata = local_->GetStatsIfExists(OpenFileInfo(absolute), opener);
    struct stat status;
    if (metadata && stat(absolute.c_str(), &status) == 0) {
        metadata->version_tag = StatusOf(status).version; // as an open handle tells it
    }
    return metadata;
}

bool DirectFileSystem::FileExists(const std::string &path, Opener opener) {
    // COPY would write all of its file first, to replace by it what exists. Now it cannot create that, and is refused.
    const std::string absolute = FilePath(path, opener);
    const bool exists = local_->FileExists(absolute, opener);
    if (!exists && DatabaseOfLog(absolute).empty()) {
        RememberHeaders(opener, absolute, [] { return ""; });
    }
    if (exists) {
        RememberExisting(opener, absolute);
    }
    return exists && !LeadsToOpenFile(absolute);
}

void DirectFileSystem::RemoveFile(const std::string &path, Opener opener) {
    const std::string absolute = FilePath(path, opener);
    if (TemporaryNameOf(path) != TemporaryName::NONE) {
        local_->RemoveFile(absolute, opener);
        return;
    }
    // DuckDB does not sync after removing a write-ahead log, and relies on its not coming back.
    Translated([&] {
        RequireNoVolume(absolute); // COPY with OVERWRITE removes whatever it finds in its directory
        const EntryFlush name(absolute, absolute);
        RequireOwnLog(absolute);
        local_->RemoveFile(absolute, opener);
        name.Run();
    });
}

bool DirectFileSystem::TryRemoveFile(const std::string &path, Opener opener) {
    if (!FileExists(path, opener)) {
        return false;
    }
    RemoveFile(path, opener);
    return true;
}

void DirectFileSystem::MoveFile(const std::string &source, const std::string &target, Opener opener) {
    if (!IsDirectPath(source) || !IsDirectPath(target)) {
        throw duckdb::InvalidInputException(
            "%s: cannot move it to %s; CALL nvme_copy(source, destination) instead", source, target);
    }
    const std::string from = FilePath(source, opener), to = FilePath(target, opener);
    Translated([&] {
        RequireNoOpenFile(to);
        const std::unique_ptr<TargetLock> replaced = LockReplaced(to);
        std::optional<EntryFlush> old_name;
        if (DirectoryOf(from) != DirectoryOf(to)) {
            old_name.emplace(from, from);
        }
        RenameReplacing(from, to);
        if (old_name) {
            old_name->Run();
        }
    });
}

bool DirectFileSystem::DirectoryExists(const std::string &path, Opener opener) {
    return local_->DirectoryExists(DirectoryPath(path, opener), opener);
}

bool DirectFileSystem::CreateDirectoryExtended(const std::string &path,
                                               const duckdb::CreateDirectoryOptions &options, Opener opener) {
    return local_->CreateDirectoryExtended(DirectoryPath(path, opener), options, opener);
}

bool DirectFileSystem::RemoveDirectoryExtended(const std::string &path,
                                               const duckdb::RemoveDirectoryOptions &options, Opener opener) {
    return local_->RemoveDirectoryExtended(DirectoryPath(path, opener), options, opener);
}

bool DirectFileSystem::ListFiles(const std::string &path,
                                 const std::function<void(const std::string &, bool)> &callback,
                                 FileOpener *opener) {
    return local_->ListFiles(DirectoryPath(path, opener), callback, opener);
}

duckdb::vector<OpenFileInfo> DirectFileSystem::Glob(const std::string &pattern, FileOpener *opener) {
    FilePath(pattern, opener);
    duckdb::vector<OpenFileInfo> result;
    const Sandbox sandbox(opener);
    for (auto &found : local_->Glob(LocalPath(pattern), opener)) {
        const std::string path = DIRECT_SCHEME + found.path;
        if (sandbox.MayReachFile(DIRECT_SCHEME + AbsolutePath(path, opener))) {
            result.emplace_back(path);
        }
    }
    return result;
}

} // namespace rawduck
