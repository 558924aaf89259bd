//! The half of a DuckDB file system that works on open handles. What works on names is up to the subclasses.
#pragma once

#include "common/memory/recent_growth.hpp"
#include "common/process/fork_generation.hpp"
#include "common/process/reader_threads.hpp"
#include "extension/memory/held_blocks.hpp"
#include "io/storage_file.hpp"
#include "volume/mount/open_file.hpp"

#include "duckdb/common/file_system.hpp"

#include <functional>
#include <memory>

namespace rawduck {

class StorageFileHandle : public duckdb::FileHandle {
  public:
    //! `prefetch`: let scans read ahead, by not calling this a file on a local disk (OnDiskFile). `instance`: whose
    //! file it is, null if nobody knows.
    StorageFileHandle(duckdb::FileSystem &file_system, std::string path, duckdb::FileOpenFlags flags,
                      std::unique_ptr<StorageFile> file, bool prefetch, duckdb::DatabaseInstance *instance);
    ~StorageFileHandle() override;

    void Close() override;
    //! Throws when the handle is closed.
    StorageFile &File();
    //! To be called where a query is about to read ahead. Whether it should: not while DuckDB is spilling, which gets worse
    //! by the memory that is read ahead into.
    bool ExpectReadAhead();

    duckdb::idx_t position = 0; //!< of sequential reads and writes
    const bool prefetch;
    //! Closing a database waits for the threads that have read from it (ReaderThreads). Nothing of DuckDB's ends with
    //! other files that these threads might still need.
    const bool counts_readers;
    ReaderThreads readers; //!< where counts_readers

  private:
    void WaitForReaders();

    std::unique_ptr<StorageFile> file_;
    duckdb::DatabaseInstance *const instance_;
    BlockManagerOfFile block_manager_;
    //! Of DuckDB's temporary files. A scan asks for each row group: some tens of milliseconds of work in each thread.
    RecentGrowth spilled_{std::chrono::milliseconds(500)};
};

class StorageFileSystem : public duckdb::FileSystem {
  public:
    using Opener = duckdb::optional_ptr<duckdb::FileOpener>;

    std::string PathSeparator(const std::string &) override { return "/"; }
    //! Without its parents, and with what is in it, as DuckDB's own file system does.
    void CreateDirectory(const std::string &path, Opener opener) override;
    void RemoveDirectory(const std::string &path, Opener opener) override;

    //! Exactly `nr_bytes`; throws when the file ends earlier, like DuckDB's own file system.
    void Read(duckdb::FileHandle &handle, void *buffer, int64_t nr_bytes, duckdb::idx_t location) override;
    void Write(duckdb::FileHandle &handle, void *buffer, int64_t nr_bytes, duckdb::idx_t location) override;
    int64_t Read(duckdb::FileHandle &handle, void *buffer, int64_t nr_bytes) override;
    int64_t Write(duckdb::FileHandle &handle, void *buffer, int64_t nr_bytes) override;
    bool Trim(duckdb::FileHandle &handle, duckdb::idx_t offset_bytes, duckdb::idx_t length_bytes) override;
    void Truncate(duckdb::FileHandle &handle, int64_t new_size) override;
    void FileSync(duckdb::FileHandle &handle) override;
    void AbortFileWrite(duckdb::FileHandle &handle) override;

    int64_t GetFileSize(duckdb::FileHandle &handle) override;
    duckdb::timestamp_t GetLastModifiedTime(duckdb::FileHandle &handle) override;
    std::string GetVersionTag(duckdb::FileHandle &handle) override;
    duckdb::FileType GetFileType(duckdb::FileHandle &handle) override;
    duckdb::FileMetadata Stats(duckdb::FileHandle &handle) override;

    void Seek(duckdb::FileHandle &handle, duckdb::idx_t location) override;
    void Reset(duckdb::FileHandle &handle) override;
    duckdb::idx_t SeekPosition(duckdb::FileHandle &handle) override;
    bool CanSeek() override { return true; }

    duckdb::FileWriteMode GetWriteMode(duckdb::FileHandle &handle) override;
    bool OnDiskFile(duckdb::FileHandle &handle) override;

    duckdb::unique_ptr<duckdb::MemoryMappedFile> MemoryMapFile(const duckdb::OpenFileInfo &path,
                                                               duckdb::FileOpenFlags flags,
                                                               const duckdb::MMapOptions &options,
                                                               Opener opener) override;

  protected:
    //! What `open` returns, or null where it fails in the way that the flags ask to be told of by null.
    static std::unique_ptr<StorageFile> OpenOrNull(const duckdb::FileOpenFlags &flags,
                                                   const std::function<std::unique_ptr<StorageFile>()> &open);
    //! Wraps an opened file and announces it to DuckDB's log. Null for null.
    duckdb::unique_ptr<duckdb::FileHandle> MakeHandle(const std::string &path, duckdb::FileOpenFlags flags,
                                                      std::unique_ptr<StorageFile> file, Opener opener);
    static duckdb::FileMetadata ToMetadata(const StorageFile::Status &status);
    //! Throws where a database or its log would be written in a child of fork() by the DuckDB of its parent. Such a
    //! DuckDB knows a database as it was then: others may have changed it since, and would lose what they committed.
    void RequireOwnDatabase(const std::string &path, const OpenMode &mode) const;
    //! What stands in a message after "cannot map it into memory: ".
    virtual std::string WhyNotMapped() const = 0;

  private:
    const uint64_t fork_generation_ = ForkGeneration(); //!< of the process in which this DuckDB was opened
};

//! How a file of this name is to be opened, decoded from DuckDB's flags. Throws for flags that make no sense,
//! as DuckDB's own file system does.
OpenMode OpenModeOf(duckdb::FileOpenFlags flags, const std::string &name);

} // namespace rawduck
