#include "sql/file_copy.hpp"

#include "device/posix_lock.hpp"
#include "filesystem/duckdb_errors.hpp"
#include "filesystem/path.hpp"

#include "common/units.hpp"

#include "duckdb/storage/storage_info.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/stat.h>

namespace rawduck {

using duckdb::FileFlags;
using duckdb::FileLockType;
using duckdb::FileOpenFlags;

namespace {

constexpr uint64_t PIECE_BYTES = 8 * MIB;
constexpr const char *TEMPORARY_SUFFIX = ".nvme_copy";

//! DuckDB's own file system would not notice a database that is attached in this process, and drop its lock.
void CheckNotAttachedHere(duckdb::FileSystem &files, const std::string &path) {
    if (!IsVolumePath(path) && !IsDirectPath(path)) {
        files.FileExists(path); // throws when DuckDB's settings forbid the path: then nothing is told of it
        Translated([&] { CheckNoPosixLock(files.ExpandPath(path)); });
    }
}

//! The copy takes its place by renaming, which would put a file where a device's node was.
void RefuseDevice(duckdb::FileSystem &files, const std::string &path) {
    struct stat status;
    const std::string local = files.ExpandPath(IsDirectPath(path) ? StripDirectScheme(path) : path);
    if (!IsVolumePath(path) && stat(local.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
        throw duckdb::InvalidInputException(
            "%s: it is not a regular file, and a copy would take its place. To put files on a device, "
            "format it (nvme_format) and name one on it: nvme://%s/<name>",
            path, local);
    }
}

bool IsDatabase(const char *data, uint64_t length) {
    const uint64_t offset = duckdb::MainHeader::MAGIC_BYTE_OFFSET, size = duckdb::MainHeader::MAGIC_BYTE_SIZE;
    return length >= offset + size && std::memcmp(data + offset, duckdb::MainHeader::MAGIC_BYTES, size) == 0;
}

} // namespace

FileCopy::FileCopy(duckdb::FileSystem &files, std::string source, std::string destination, bool overwrite)
    : files_(files), source_path_(std::move(source)), destination_path_(std::move(destination)),
      temporary_path_(destination_path_ + TEMPORARY_SUFFIX),
      buffer_(static_cast<char *>(std::aligned_alloc(UNIT_SIZE, PIECE_BYTES)), std::free) {
    if (!buffer_) {
        throw std::bad_alloc();
    }
    CheckNames(overwrite);
    OpenSource();
    OpenDestination();
}

FileCopy::~FileCopy() {
    if (finished_ || !destination_) {
        return;
    }
    try {
        destination_.reset();
        files_.TryRemoveFile(temporary_path_);
    } catch (...) {
        // A destructor cannot report; the next copy to this name overwrites what is left.
    }
}

void FileCopy::CheckNames(bool overwrite) {
    if (source_path_ == destination_path_) {
        throw duckdb::InvalidInputException("%s: source and destination of the copy are the same",
                                            source_path_);
    }
    CheckNotAttachedHere(files_, source_path_);
    CheckNotAttachedHere(files_, destination_path_);
    RefuseDevice(files_, destination_path_);
    RequireNoLog(source_path_,
                 "it holds what is not yet in the file. ATTACH the database, CHECKPOINT and DETACH it, "
                 "then copy");
    RequireNoLog(destination_path_,
                 "it would be replayed into the copy. ATTACH and DETACH that database first, or "
                 "remove its log");
    if (files_.FileExists(destination_path_)) {
        if (!overwrite) {
            throw duckdb::IOException("%s: it exists already; choose another name or pass overwrite := true",
                                      destination_path_);
        }
        replaced_ = files_.OpenFile(destination_path_,
                                    FileFlags::FILE_FLAGS_READ | FileFlags::FILE_FLAGS_WRITE |
                                        FileFlags::FILE_FLAGS_NULL_IF_NOT_EXISTS | FileLockType::WRITE_LOCK);
    }
}

void FileCopy::RequireNoLog(const std::string &path, const char *advice) {
    const std::string log = path + ".wal";
    auto handle = files_.OpenFile(log, FileFlags::FILE_FLAGS_READ | FileFlags::FILE_FLAGS_NULL_IF_NOT_EXISTS);
    if (handle && handle->GetFileSize() > 0) {
        throw duckdb::IOException("%s: there is a write-ahead log beside it, %s, and %s.", path, log, advice);
    }
}

void FileCopy::OpenSource() {
    source_ = files_.OpenFile(source_path_, FileFlags::FILE_FLAGS_READ | FileLockType::READ_LOCK);
    size_ = source_->GetFileSize();
}

void FileCopy::OpenDestination() {
    const uint64_t length = std::min<uint64_t>(size_, duckdb::Storage::FILE_HEADER_SIZE);
    source_->Read(buffer_.get(), length, 0);
    auto flags = FileFlags::FILE_FLAGS_READ | FileFlags::FILE_FLAGS_WRITE |
                 FileFlags::FILE_FLAGS_FILE_CREATE_NEW | FileLockType::WRITE_LOCK;
    if (IsDatabase(buffer_.get(), length)) {
        // The way DuckDB opens a database file, which is how a volume knows that it is one.
        flags |= FileFlags::FILE_FLAGS_PARALLEL_ACCESS;
    }
    destination_ = files_.OpenFile(temporary_path_, flags);
}

bool FileCopy::CopyPiece() {
    const uint64_t offset = copied_;
    const uint64_t length = std::min(PIECE_BYTES, size_ - offset);
    if (length == 0) {
        return false;
    }
    source_->Read(buffer_.get(), length, offset);
    destination_->Write(duckdb::QueryContext(), buffer_.get(), length, offset);
    copied_ = offset + length;
    return true;
}

void FileCopy::Finish() {
    destination_->Sync();
    destination_->Close();
    files_.MoveFile(temporary_path_, destination_path_);
    finished_ = true;
    destination_.reset();
    replaced_.reset();
    source_.reset();
}

double FileCopy::ProgressPercent() const {
    return size_ == 0 ? 100 : 100 * static_cast<double>(copied_) / static_cast<double>(size_);
}

} // namespace rawduck
