#include "extension/sql/copy/file_copy.hpp"

#include "direct/rename_file.hpp"
#include "extension/file_systems/copy/replaced_files.hpp"
#include "extension/file_systems/errors.hpp"
#include "extension/sql/copy/unfinished.hpp"
#include "target/open_target.hpp"
#include "target/system/posix_lock.hpp"
#include "volume/names/path.hpp"

#include "common/units.hpp"

#include "duckdb/storage/storage_info.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck {

using duckdb::FileFlags;
using duckdb::FileLockType;
using duckdb::FileOpenFlags;

namespace {

constexpr uint64_t PIECE_BYTES = 8 * MIB;
constexpr const char *LOG_AT_DESTINATION =
    "it would be replayed into the copy. ATTACH and DETACH that database first, or remove its log";

//! Where a path leads in the ordinary file systems of this machine, if it is not on a volume.
std::string LocalPath(duckdb::FileSystem &files, const std::string &path) {
    const std::string local =
        files.ExpandPath(IsDirectPath(path) ? Translated([&] { return StripDirectScheme(path); }) : path);
    return !local.empty() && local[0] == '/' ? local
                                             : duckdb::FileSystem::GetWorkingDirectory() + "/" + local;
}

//! Whether it is an ordinary file, which is not so for one on a volume or of another file system of DuckDB's.
bool IsLocalFile(duckdb::FileSystem &files, const std::string &path) {
    struct stat status;
    return !IsVolumePath(path) && stat(LocalPath(files, path).c_str(), &status) == 0 &&
           S_ISREG(status.st_mode);
}

//! Under two names: of two links to it, or with and without direct://.
bool IsOneFile(duckdb::FileSystem &files, const std::string &path, const std::string &other) {
    struct stat status, other_status;
    return !IsVolumePath(path) && !IsVolumePath(other) &&
           stat(LocalPath(files, path).c_str(), &status) == 0 &&
           stat(LocalPath(files, other).c_str(), &other_status) == 0 &&
           status.st_dev == other_status.st_dev && status.st_ino == other_status.st_ino;
}

//! Only a regular file has a length to copy; and a copy takes its place by renaming, which would put a file
//! where a device's node was.
void RequireRegular(duckdb::FileSystem &files, const std::string &path, const char *advice) {
    struct stat status;
    if (!IsVolumePath(path) && stat(LocalPath(files, path).c_str(), &status) == 0 &&
        !S_ISREG(status.st_mode)) {
        throw duckdb::InvalidInputException("%s: it is not a regular file, %s: nvme://<device>/<name>", path,
                                            advice);
    }
}

//! The file to which a symbolic link leads: that is what a copy over it replaces, and a database's write-ahead
//! log lies beside that, whatever name it was attached by.
std::string BehindLinks(duckdb::FileSystem &files, const std::string &path) {
    struct stat status;
    const std::string local = IsVolumePath(path) ? "" : LocalPath(files, path);
    if (local.empty() || lstat(local.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) {
        return path;
    }
    std::unique_ptr<char, void (*)(void *)> target(realpath(local.c_str(), nullptr), std::free);
    if (!target) {
        throw duckdb::IOException("%s: it is a symbolic link that leads to no file (%s); remove it, or name "
                                  "another file",
                                  path, ErrnoText(errno));
    }
    return (IsDirectPath(path) ? DIRECT_SCHEME : "") + std::string(target.get());
}

bool IsDatabase(const char *data, uint64_t length) {
    const uint64_t offset = duckdb::MainHeader::MAGIC_BYTE_OFFSET, size = duckdb::MainHeader::MAGIC_BYTE_SIZE;
    return length >= offset + size && std::memcmp(data + offset, duckdb::MainHeader::MAGIC_BYTES, size) == 0;
}

} // namespace

FileCopy::FileCopy(duckdb::FileSystem &files, std::string source, std::string destination, bool overwrite)
    : files_(files), source_path_(std::move(source)), destination_path_(std::move(destination)),
      buffer_(static_cast<char *>(std::aligned_alloc(PAGE_BYTES, PIECE_BYTES)), std::free) {
    if (!buffer_) {
        throw std::bad_alloc();
    }
    CheckNames(overwrite);
    OpenSource();
    // Now that nobody can begin one.
    RequireNoLog(source_path_,
                 "it holds what is not yet in the file. ATTACH the database, CHECKPOINT and DETACH it, "
                 "then copy. Of a snapshot, of @latest, and from a volume that can only be read: nvme_send "
                 "and nvme_receive (`rawduck send` and `receive`) copy both; or ATTACH it READ_ONLY and use "
                 "COPY FROM DATABASE");
    try {
        OpenDestination();
    } catch (...) {
        RemoveUnfinished();
        throw;
    }
}

FileCopy::~FileCopy() {
    RemoveUnfinished();
}

void FileCopy::RemoveUnfinished() noexcept {
    if (finished_ || !destination_) {
        return;
    }
    try {
        if (volume_) {
            // Closed first, it would let in a reader, who keeps it from being removed.
            volume_->Remove(SplitVolumePath(temporary_path_).file, RemoveMode::OWN);
            return;
        }
        destination_.reset();
        files_.TryRemoveFile(temporary_path_);
    } catch (...) {
        // There is nobody to report to. What is left has the name of the copy in its own.
    }
}

void FileCopy::CheckNames(bool overwrite) {
    // First of all, because it throws when DuckDB's settings forbid a path: then nothing is told of it.
    const bool replaces = files_.FileExists(destination_path_);
    files_.FileExists(source_path_);
    for (const std::string *path : {&source_path_, &destination_path_}) {
        if (IsVolumePath(*path)) {
            Translated([&] {
                const VolumePath parts = SplitVolumePath(*path);
                CheckFileName(parts.target, parts.file);
            });
        }
    }
    RequireRegular(files_, source_path_,
                   "so there is nothing to copy. A file on a device has a name of its own");
    RequireRegular(
        files_, destination_path_,
        "and a copy would take its place. To put files on a device, format it (nvme_format) and name "
        "one on it");
    for (std::string *path : {&source_path_, &destination_path_}) {
        *path = BehindLinks(files_, *path);
        files_.FileExists(*path); // DuckDB's settings may forbid where the link leads
    }
    if (source_path_ == destination_path_ || IsOneFile(files_, source_path_, destination_path_)) {
        throw duckdb::InvalidInputException("%s: source and destination of the copy are the same",
                                            source_path_);
    }
    RequireNoLog(destination_path_, LOG_AT_DESTINATION);
    if (replaces && !overwrite) {
        throw duckdb::IOException("%s: it exists already; choose another name or pass overwrite := true "
                                  "(rawduck cp: --overwrite)",
                                  destination_path_);
    }
    if (replaces) {
        LockReplaced();
    }
}

// Not through DuckDB's own file system: its locks keep out no database of this process, and closing the file
// would drop the lock of one.
void FileCopy::LockReplaced() {
    if (IsLocalFile(files_, destination_path_)) {
        Translated([&] {
            replaced_target_ = ResolveTarget(LocalPath(files_, destination_path_));
            replaced_lock_ = std::make_unique<TargetLock>(replaced_target_, TargetLock::Mode::EXCLUSIVE);
            RequireNoVolume(replaced_target_.path);
        });
        return;
    }
    replaced_ = files_.OpenFile(destination_path_, FileFlags::FILE_FLAGS_READ | FileFlags::FILE_FLAGS_WRITE |
                                                       FileFlags::FILE_FLAGS_NULL_IF_NOT_EXISTS |
                                                       FileLockType::WRITE_LOCK);
}

void FileCopy::RequireNoLog(const std::string &path, const char *advice) {
    const std::string log = path + ".wal";
    if (IsVolumePath(log) && SplitVolumePath(log).file.size() > NAME_BYTES_MAX) {
        return; // there can be none
    }
    if (files_.FileExists(log) && !IsEmpty(log)) {
        throw duckdb::IOException("%s: there is a write-ahead log beside it, %s, and %s.", path, log, advice);
    }
}

// An ordinary file is not opened: closing it would drop the lock of stock DuckDB, which locks its logs, too.
bool FileCopy::IsEmpty(const std::string &path) {
    struct stat status;
    if (!IsVolumePath(path) && stat(LocalPath(files_, path).c_str(), &status) == 0) {
        return status.st_size == 0;
    }
    auto handle =
        files_.OpenFile(path, FileFlags::FILE_FLAGS_READ | FileFlags::FILE_FLAGS_NULL_IF_NOT_EXISTS);
    return !handle || handle->GetFileSize() == 0;
}

// As LockReplaced.
void FileCopy::OpenSource() {
    if (!IsLocalFile(files_, source_path_) || IsDirectPath(source_path_)) {
        source_ = files_.OpenFile(source_path_, FileFlags::FILE_FLAGS_READ | FileLockType::READ_LOCK);
        size_ = source_->GetFileSize();
        return;
    }
    Translated([&] {
        const Target target = ResolveTarget(LocalPath(files_, source_path_));
        source_lock_ = std::make_unique<TargetLock>(target, TargetLock::Mode::SHARED);
        local_source_ = OpenTarget(target, O_RDONLY);
        struct stat status;
        if (fstat(local_source_.Get(), &status) != 0) {
            ThrowOpenError(source_path_, "ask for its size", errno);
        }
        size_ = static_cast<uint64_t>(status.st_size);
    });
}

void FileCopy::ReadSource(uint64_t length, uint64_t offset) {
    if (source_) {
        source_->Read(buffer_.get(), length, offset);
        return;
    }
    for (uint64_t done = 0; done < length;) {
        const ssize_t bytes = pread(local_source_.Get(), buffer_.get() + done, length - done,
                                    static_cast<off_t>(offset + done));
        if (bytes < 0 && errno == EINTR) {
            continue;
        }
        if (bytes <= 0) {
            throw duckdb::IOException("%s: cannot read %llu bytes at %llu of it: %s", source_path_, length,
                                      offset, bytes < 0 ? ErrnoText(errno) : "it has become shorter");
        }
        done += static_cast<uint64_t>(bytes);
    }
}

void FileCopy::OpenDestination() {
    const uint64_t length = std::min<uint64_t>(size_, duckdb::Storage::FILE_HEADER_SIZE);
    ReadSource(length, 0);
    auto flags = FileFlags::FILE_FLAGS_READ | FileFlags::FILE_FLAGS_WRITE;
    if (IsDatabase(buffer_.get(), length)) {
        // The way DuckDB opens a database file, which is how a volume knows that it is one.
        flags |= FileFlags::FILE_FLAGS_PARALLEL_ACCESS;
    }
    flags |= FileFlags::FILE_FLAGS_FILE_CREATE | FileFlags::FILE_FLAGS_EXCLUSIVE_CREATE;
    const bool is_on_volume = IsVolumePath(destination_path_);
    const bool is_ours = is_on_volume || IsDirectPath(destination_path_);
    temporary_path_ = UnfinishedPath(destination_path_, is_on_volume);
    try {
        destination_ = files_.OpenFile(temporary_path_, is_ours ? flags | FileLockType::WRITE_LOCK : flags);
    } catch (const duckdb::IOException &error) {
        // The user knows the destination's name.
        const std::string what = duckdb::ErrorData(error).RawMessage();
        throw duckdb::IOException(duckdb::StringUtil::Replace(what, temporary_path_, destination_path_));
    }
    if (!is_ours && IsLocalFile(files_, temporary_path_)) {
        // DuckDB's own locks keep out no database of this process.
        Translated([&] {
            destination_lock_ = std::make_unique<TargetLock>(
                ResolveTarget(LocalPath(files_, temporary_path_)), TargetLock::Mode::EXCLUSIVE);
        });
    }
    if (replaced_lock_) {
        KeepAccess();
    }
    Translated([&] { MakeRoom(); });
}

void FileCopy::MakeRoom() {
    if (IsVolumePath(temporary_path_)) {
        const std::string target = SplitVolumePath(temporary_path_).target;
        volume_ = PinVolume(target, MountOptions());
        RemoveLeftovers(files_, *volume_, target);
        RequireRoom(*volume_, destination_path_, size_);
    } else if (IsLocalFile(files_, temporary_path_)) {
        const std::string local = LocalPath(files_, destination_path_);
        RemoveLeftovers(local);
        RequireRoom(local, size_);
    }
}

// Before anything is written: what is replaced may be private.
void FileCopy::KeepAccess() {
    const std::string path = LocalPath(files_, temporary_path_);
    struct stat status;
    if (fstat(replaced_lock_->DescriptorOf(replaced_target_), &status) != 0) {
        throw duckdb::IOException("%s: cannot ask for its permissions: %s", destination_path_,
                                  ErrnoText(errno));
    }
    // Only root can give a file away. Where the group is another one, that gets no rights.
    const bool given = chown(path.c_str(), status.st_uid, status.st_gid) == 0;
    const mode_t mode = status.st_mode & (given ? 0777 : 0707);
    if (chmod(path.c_str(), mode) != 0) {
        throw duckdb::IOException("%s: cannot give it the permissions of what it replaces: %s", path,
                                  ErrnoText(errno));
    }
}

bool FileCopy::CopyPiece() {
    const uint64_t offset = copied_;
    const uint64_t length = std::min(PIECE_BYTES, size_ - offset);
    if (length == 0) {
        return false;
    }
    ReadSource(length, offset);
    destination_->Write(duckdb::QueryContext(), buffer_.get(), length, offset);
    copied_ = offset + length;
    return true;
}

void FileCopy::Finish() {
    destination_->Sync();
    if (!volume_) { // a volume stays locked until the copy has its name
        destination_->Close();
    }
    RequireNoLog(destination_path_, LOG_AT_DESTINATION); // somebody may have begun one meanwhile
    Translated([&] {
        try {
            TakeName();
        } catch (const Error &error) {
            if (error.Code() != ErrorCode::EXISTS) {
                throw;
            }
            throw Error(error.Code(),
                        std::string(error.what()) +
                            ". That was made while the copy ran, so it was left as it is, and "
                            "nothing was copied; choose another name, or copy again with overwrite := true "
                            "(rawduck cp: --overwrite)");
        }
    });
    finished_ = true;
    // The result of the statement may be kept for long; the locks are not. The copy is durable.
    destination_.reset();
    destination_lock_.reset();
    replaced_.reset();
    replaced_lock_.reset();
    source_.reset();
    source_lock_.reset();
    local_source_ = FileDescriptor();
    volume_ = VolumePin();
}

void FileCopy::TakeName() {
    if (volume_) {
        volume_->Move(SplitVolumePath(temporary_path_).file, SplitVolumePath(destination_path_).file,
                      replaced_ ? MoveMode::REPLACE_OWN : MoveMode::NEW_NAME);
        return;
    }
    if (!IsLocalFile(files_, temporary_path_)) {
        if (!replaced_ && files_.FileExists(destination_path_)) {
            throw Error(ErrorCode::EXISTS, destination_path_ + ": it exists already");
        }
        files_.MoveFile(temporary_path_, destination_path_);
        return;
    }
    const std::string from = LocalPath(files_, temporary_path_), to = LocalPath(files_, destination_path_);
    if (!replaced_lock_) {
        RenameToNewName(from, to);
        return;
    }
    if (ResolveTarget(to).identity != replaced_target_.identity) {
        throw Error(ErrorCode::EXISTS, to + ": another file has taken the place of the one that was to be "
                                            "replaced");
    }
    RenameReplacing(from, to);
}

double FileCopy::ProgressPercent() const {
    return size_ == 0 ? 100 : 100 * static_cast<double>(copied_) / static_cast<double>(size_);
}

} // namespace rawduck
