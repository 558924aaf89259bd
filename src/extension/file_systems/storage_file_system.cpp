#include "extension/file_systems/storage_file_system.hpp"

#include "extension/file_systems/errors.hpp"
#include "extension/file_systems/settings.hpp"

#include "common/scope_exit.hpp"

#include "duckdb/common/memory_mapped_file.hpp"
#include "duckdb/logging/file_system_logger.hpp"
#include "duckdb/logging/log_type.hpp"
#include "duckdb/logging/logger.hpp"
#include "duckdb/storage/buffer_manager.hpp"
#include "volume/names/file_name.hpp"

namespace rawduck {

using duckdb::FileHandle;
using duckdb::FileOpener;
using duckdb::FileOpenFlags;
using duckdb::idx_t;
using duckdb::optional_ptr;
// For the macros of DuckDB's log.
using duckdb::FileSystemLogType;
using duckdb::Logger;

namespace {

//! Only a thread that is ready to run and gets no processor is waited for that long.
constexpr std::chrono::milliseconds READERS_LIMIT{10000};

//! As DuckDB opens databases, and nothing else.
bool IsDatabase(FileOpenFlags flags) {
    return flags.RequireParallelAccess() && flags.Lock() != duckdb::FileLockType::NO_LOCK;
}

} // namespace

StorageFileHandle::StorageFileHandle(duckdb::FileSystem &file_system, std::string path, FileOpenFlags flags,
                                     std::unique_ptr<StorageFile> file, bool prefetch,
                                     duckdb::DatabaseInstance *instance)
    : FileHandle(file_system, std::move(path), std::move(flags)),
      prefetch(prefetch && !file->KernelReadsAhead()), counts_readers(prefetch && IsDatabase(this->flags)),
      file_(std::move(file)), instance_(instance) {}

StorageFileHandle::~StorageFileHandle() {
    try {
        StorageFileHandle::Close();
    } catch (...) {
        // A destructor cannot report; whoever needs to know calls Close or Sync.
    }
}

void StorageFileHandle::Close() {
    if (!file_) {
        return;
    }
    if (counts_readers) {
        WaitForReaders();
    }
    auto file = std::move(file_);
    Translated([&] { file->Close(); });
    DUCKDB_LOG_FILE_SYSTEM_CLOSE((*this));
}

//! What DuckDB knows of its blocks shows at once that nobody holds them any more. Where it is not to be had, the
//! threads are observed.
void StorageFileHandle::WaitForReaders() {
    std::unique_ptr<HeldBlocks> blocks;
    if (duckdb::BlockManager *const manager = block_manager_.Get()) {
        try {
            blocks = HeldBlocks::Of(*manager);
        } catch (const std::bad_alloc &) {
            // The threads can be observed without memory.
        }
    }
    readers.WaitUntilReleased(READERS_LIMIT, [&] { return blocks && blocks->OthersHaveReleased(); });
}

bool StorageFileHandle::ExpectReadAhead() {
    if (instance_) {
        block_manager_.LookFor(*instance_, *this);
    }
    const duckdb::BlockManager *const manager = block_manager_.Get();
    return !manager || !spilled_.Note(manager->buffer_manager.GetUsedSwap());
}

StorageFile &StorageFileHandle::File() {
    if (!file_) {
        throw duckdb::IOException("%s: the file is closed", path);
    }
    return *file_;
}

namespace {

StorageFile &FileOf(FileHandle &handle) {
    return handle.Cast<StorageFileHandle>().File();
}

} // namespace

void StorageFileSystem::CreateDirectory(const std::string &path, Opener opener) {
    CreateDirectoryExtended(path, {duckdb::CreateDirectoryMode::SINGLE}, opener);
}

void StorageFileSystem::RemoveDirectory(const std::string &path, Opener opener) {
    RemoveDirectoryExtended(path, {duckdb::RemoveDirectoryMode::RECURSIVE}, opener);
}

void StorageFileSystem::Read(FileHandle &handle, void *buffer, int64_t nr_bytes, idx_t location) {
    auto &storage = handle.Cast<StorageFileHandle>();
    auto length = static_cast<uint64_t>(nr_bytes);
    if (storage.counts_readers) {
        storage.readers.Expect(length);
    }
    // Also when it fails: what the thread was to read into, it holds all the same.
    const ScopeExit has_read(
        [&] { storage.counts_readers ? storage.readers.Add() : ReaderThreads::AddOtherFile(); });
    auto bytes = Translated([&] { return storage.File().Read(buffer, length, location); });
    if (bytes != length) {
        throw duckdb::IOException(
            "Could not read enough bytes from file \"%s\": attempted to read %llu bytes from "
            "location %llu, but the file ends after %llu of them",
            handle.path, length, location, bytes);
    }
    DUCKDB_LOG_FILE_SYSTEM_READ(handle, nr_bytes, location);
}

void StorageFileSystem::Write(FileHandle &handle, void *buffer, int64_t nr_bytes, idx_t location) {
    Translated([&] { FileOf(handle).Write(buffer, static_cast<uint64_t>(nr_bytes), location); });
    DUCKDB_LOG_FILE_SYSTEM_WRITE(handle, nr_bytes, location);
}

int64_t StorageFileSystem::Read(FileHandle &handle, void *buffer, int64_t nr_bytes) {
    auto &position = handle.Cast<StorageFileHandle>().position;
    auto bytes =
        Translated([&] { return FileOf(handle).Read(buffer, static_cast<uint64_t>(nr_bytes), position); });
    DUCKDB_LOG_FILE_SYSTEM_READ(handle, static_cast<int64_t>(bytes), position);
    position += bytes;
    return static_cast<int64_t>(bytes);
}

int64_t StorageFileSystem::Write(FileHandle &handle, void *buffer, int64_t nr_bytes) {
    auto &position = handle.Cast<StorageFileHandle>().position;
    auto length = static_cast<uint64_t>(nr_bytes);
    Translated([&] {
        if (handle.flags.OpenForAppending()) {
            position = FileOf(handle).Append(buffer, length);
        } else {
            FileOf(handle).Write(buffer, length, position);
        }
    });
    DUCKDB_LOG_FILE_SYSTEM_WRITE(handle, nr_bytes, position);
    position += length;
    return nr_bytes;
}

bool StorageFileSystem::Trim(FileHandle &handle, idx_t offset_bytes, idx_t length_bytes) {
    return Translated([&] { return FileOf(handle).Deallocate(offset_bytes, length_bytes); });
}

void StorageFileSystem::Truncate(FileHandle &handle, int64_t new_size) {
    Translated([&] { FileOf(handle).Truncate(static_cast<uint64_t>(new_size)); });
}

void StorageFileSystem::FileSync(FileHandle &handle) {
    auto &file = FileOf(handle);
    try {
        file.Sync();
    } catch (const Error &error) {
        ThrowAsSyncFailure(error);
    }
}

void StorageFileSystem::AbortFileWrite(FileHandle &handle) {
    handle.Close();
    if (handle.GetFlags().ExclusiveCreate()) {
        TryRemoveFile(handle.GetPath());
    }
}

int64_t StorageFileSystem::GetFileSize(FileHandle &handle) {
    return static_cast<int64_t>(Translated([&] { return FileOf(handle).Size(); }));
}

duckdb::timestamp_t StorageFileSystem::GetLastModifiedTime(FileHandle &handle) {
    return Stats(handle).last_modification_time;
}

std::string StorageFileSystem::GetVersionTag(FileHandle &handle) {
    return Stats(handle).version_tag;
}

duckdb::FileType StorageFileSystem::GetFileType(FileHandle &) {
    return duckdb::FileType::FILE_TYPE_REGULAR;
}

duckdb::FileMetadata StorageFileSystem::Stats(FileHandle &handle) {
    return ToMetadata(Translated([&] { return FileOf(handle).GetStatus(); }));
}

duckdb::FileMetadata StorageFileSystem::ToMetadata(const StorageFile::Status &status) {
    duckdb::FileMetadata metadata;
    metadata.file_size = static_cast<int64_t>(status.size);
    metadata.last_modification_time = duckdb::timestamp_t(status.modified_us);
    metadata.file_type = duckdb::FileType::FILE_TYPE_REGULAR;
    metadata.version_tag = status.version;
    return metadata;
}

void StorageFileSystem::Seek(FileHandle &handle, idx_t location) {
    handle.Cast<StorageFileHandle>().position = location;
}

void StorageFileSystem::Reset(FileHandle &handle) {
    Seek(handle, 0);
}

idx_t StorageFileSystem::SeekPosition(FileHandle &handle) {
    return handle.Cast<StorageFileHandle>().position;
}

duckdb::FileWriteMode StorageFileSystem::GetWriteMode(FileHandle &handle) {
    // An appending handle finds the place of a write by
    // itself, so writers must not number their writes from 0.
    return handle.flags.OpenForAppending() ? duckdb::FileWriteMode::SEQUENTIAL
                                           : duckdb::FileWriteMode::POSITIONAL;
}

bool StorageFileSystem::OnDiskFile(FileHandle &handle) {
    // DuckDB reads ahead, in runs of up to 32 MiB, only where it takes random reads to be expensive. There is
    // no page cache here to read ahead for it.
    auto &storage = handle.Cast<StorageFileHandle>();
    // DuckDB asks before each time.
    const bool may_read_ahead = !storage.counts_readers || storage.ExpectReadAhead();
    // In a child of fork() there are no threads that would read ahead, and whoever waited for them would wait for ever.
    return !storage.prefetch || !may_read_ahead || fork_generation_ != ForkGeneration();
}

duckdb::unique_ptr<duckdb::MemoryMappedFile>
StorageFileSystem::MemoryMapFile(const duckdb::OpenFileInfo &path, FileOpenFlags, const duckdb::MMapOptions &,
                                 Opener) {
    throw duckdb::NotImplementedException(
        "%s: cannot map it into memory: %s. Attach it without IO_MODE 'MMAP'.", path.path, WhyNotMapped());
}

// A database without a log is open in the parent, and its log in nobody.
void StorageFileSystem::RequireOwnDatabase(const std::string &path, const OpenMode &mode) const {
    const bool is_of_database = mode.kind == FileKind::DATABASE || mode.kind == FileKind::WAL;
    if (is_of_database && mode.write && fork_generation_ != ForkGeneration()) {
        throw duckdb::InvalidInputException(
            "%s: this DuckDB was opened before fork(), and the parent process may "
            "write to its databases; open DuckDB anew in the child",
            path);
    }
}

std::unique_ptr<StorageFile>
StorageFileSystem::OpenOrNull(const FileOpenFlags &flags,
                              const std::function<std::unique_ptr<StorageFile>()> &open) {
    try {
        return open();
    } catch (const Error &error) {
        const bool expected = (error.Code() == ErrorCode::NOT_FOUND && flags.ReturnNullIfNotExists()) ||
                              (error.Code() == ErrorCode::EXISTS && flags.ReturnNullIfExists());
        if (!expected) {
            throw;
        }
        return nullptr;
    }
}

duckdb::unique_ptr<FileHandle> StorageFileSystem::MakeHandle(const std::string &path, FileOpenFlags flags,
                                                             std::unique_ptr<StorageFile> file,
                                                             Opener opener) {
    if (!file) {
        return nullptr;
    }
    auto handle = duckdb::make_uniq<StorageFileHandle>(*this, path, flags, std::move(file),
                                                       OpenOptionsOf(opener).prefetch,
                                                       FileOpener::TryGetDatabase(opener).get());
    if (opener) {
        handle->TryAddLogger(*opener);
        DUCKDB_LOG_FILE_SYSTEM_OPEN((*handle));
    }
    return std::move(handle);
}

namespace {

//! Temporary is only what has the name and is opened in the way in which DuckDB opens that: ATTACH and COPY
//! take locks, COPY empties what is there, and either may choose any name.
FileKind KindOf(const FileOpenFlags &flags, const OpenMode &mode, const std::string &name) {
    const bool plain = mode.lock == OpenMode::Lock::NONE && !mode.must_create &&
                       !(mode.write && flags.OpenForAppending()) && mode.create;
    const TemporaryName temporary = plain ? TemporaryNameOf(name) : TemporaryName::NONE;
    if ((temporary == TemporaryName::BLOCKS && mode.read && !mode.truncate) ||
        (temporary == TemporaryName::BLOCK && !mode.read && !mode.truncate) ||
        (temporary == TemporaryName::OWNER && !mode.read && mode.truncate)) {
        return FileKind::TEMP;
    }
    return KindFromName(name, IsDatabase(flags) ? FileKind::DATABASE : FileKind::OTHER);
}

OpenMode::Lock LockOf(FileOpenFlags flags) {
    switch (flags.Lock()) {
    case duckdb::FileLockType::READ_LOCK:
        return OpenMode::Lock::SHARED;
    case duckdb::FileLockType::WRITE_LOCK:
        return OpenMode::Lock::EXCLUSIVE;
    default:
        return OpenMode::Lock::NONE;
    }
}

} // namespace

OpenMode OpenModeOf(FileOpenFlags flags, const std::string &name) {
    if (!flags.Compression().IsUncompressed()) {
        throw duckdb::NotImplementedException(
            "nvme:// and direct:// do not compress; DuckDB does it above them");
    }
    flags.Verify();
    OpenMode mode;
    mode.read = flags.OpenForReading();
    mode.write = flags.OpenForWriting();
    if (!mode.read && !mode.write) {
        throw duckdb::InternalException("READ, WRITE or both should be specified when opening a file");
    }
    mode.create = mode.write && (flags.CreateFileIfNotExists() || flags.OverwriteExistingFile());
    mode.truncate = mode.write && flags.OverwriteExistingFile();
    mode.must_create = mode.create && (flags.ExclusiveCreate() || flags.CreatePrivateFile());
    mode.owner_only = flags.CreatePrivateFile();
    mode.lock = LockOf(flags);
    mode.kind = KindOf(flags, mode, name);
    mode.gone_unless_synced = mode.kind == FileKind::DATABASE;
    return mode;
}

} // namespace rawduck
