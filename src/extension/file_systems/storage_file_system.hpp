//! The half of a DuckDB file system that works on open handles. What works on names is up to the subclasses.
#pragma once

#include "common/process/reader_threads.hpp"
#include "io/storage_file.hpp"
#include "volume/mount/open_file.hpp"

#include "duckdb/common/file_system.hpp"

#include <functional>
#include <memory>

namespace rawduck {

class StorageFileHandle : public duckdb::FileHandle {
  public:
    //! `prefetch`: let scans read ahead, by not calling this a file on a local disk (OnDiskFile).
    StorageFileHandle(duckdb::FileSystem &file_system, std::string path, duckdb::FileOpenFlags flags,
                      std::unique_ptr<StorageFile> file, bool prefetch);
    ~StorageFileHandle() override;

    void Close() override;
    //! Throws when the handle is closed.
    StorageFile &File();
    //! The handle on the file of this path (as it was opened) where there is exactly one in this process; null otherwise.
    //! For those who keep a handle of that path open: then it is theirs.
    static StorageFileHandle *OnlyOne(const std::string &path);

    duckdb::idx_t position = 0; //!< of sequential reads and writes
    const bool prefetch;
    ReaderThreads readers; //!< of a file that DuckDB reads ahead

  private:
    std::unique_ptr<StorageFile> file_;
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
    //! What stands in a message after "cannot map it into memory: ".
    virtual std::string WhyNotMapped() const = 0;
};

//! How a file of this name is to be opened, decoded from DuckDB's flags. Throws for flags that make no sense,
//! as DuckDB's own file system does.
OpenMode OpenModeOf(duckdb::FileOpenFlags flags, const std::string &name);

} // namespace rawduck
