//! DuckDB's file system for rados://<pool>/<object>: reads ranges, writes whole objects, lists by pattern.
#pragma once

#include "ceph/rados/pool/rados_pool.hpp"

#include "duckdb/common/file_system.hpp"

namespace rawduck_ceph {

class RadosFileSystem final : public duckdb::FileSystem {
  public:
    using Opener = duckdb::optional_ptr<duckdb::FileOpener>;

    std::string GetName() const override { return "RadosFileSystem"; }
    bool CanHandleFile(const std::string &path) override;
    std::string CanonicalizePath(const std::string &path, Opener) override { return path; }
    std::string PathSeparator(const std::string &) override { return "/"; }
    bool IsPathAbsolute(const std::string &) override { return true; }

    duckdb::unique_ptr<duckdb::FileHandle> OpenFile(const std::string &path, duckdb::FileOpenFlags flags,
                                                    Opener opener) override;
    void Read(duckdb::FileHandle &handle, void *buffer, int64_t nr_bytes, duckdb::idx_t location) override;
    int64_t Read(duckdb::FileHandle &handle, void *buffer, int64_t nr_bytes) override;
    void Write(duckdb::FileHandle &handle, void *buffer, int64_t nr_bytes, duckdb::idx_t location) override;
    int64_t Write(duckdb::FileHandle &handle, void *buffer, int64_t nr_bytes) override;
    void Truncate(duckdb::FileHandle &handle, int64_t new_size) override;
    //! Publishes the data written so far.
    void FileSync(duckdb::FileHandle &handle) override;
    void AbortFileWrite(duckdb::FileHandle &handle) override;

    int64_t GetFileSize(duckdb::FileHandle &handle) override;
    duckdb::timestamp_t GetLastModifiedTime(duckdb::FileHandle &handle) override;
    std::string GetVersionTag(duckdb::FileHandle &handle) override;
    duckdb::FileType GetFileType(duckdb::FileHandle &handle) override;
    duckdb::FileMetadata Stats(duckdb::FileHandle &handle) override;
    duckdb::optional<duckdb::FileMetadata> GetStatsIfExists(const duckdb::OpenFileInfo &file,
                                                            Opener opener) override;

    void Seek(duckdb::FileHandle &handle, duckdb::idx_t location) override;
    void Reset(duckdb::FileHandle &handle) override;
    duckdb::idx_t SeekPosition(duckdb::FileHandle &handle) override;
    bool CanSeek() override { return true; }
    bool OnDiskFile(duckdb::FileHandle &) override { return false; }

    bool FileExists(const std::string &path, Opener opener) override;
    bool IsPipe(const std::string &, Opener) override { return false; }
    void RemoveFile(const std::string &path, Opener opener) override;
    bool TryRemoveFile(const std::string &path, Opener opener) override;
    //! COPY calls it to overwrite what it has listed, and to clean up when it fails. Removes objects that the
    //! connection's query has listed, and of the others those that it has published and nobody has replaced since.
    //! Without a connection, all.
    void RemoveFiles(const duckdb::vector<std::string> &paths, Opener opener) override;

    //! Pools have no directories: one exists as long as an object's name begins with it and a slash.
    bool DirectoryExists(const std::string &path, Opener opener) override;
    void CreateDirectory(const std::string &path, Opener opener) override;
    bool CreateDirectoryExtended(const std::string &path, const duckdb::CreateDirectoryOptions &options,
                                 Opener opener) override;
    void RemoveDirectory(const std::string &path, Opener opener) override;
    bool RemoveDirectoryExtended(const std::string &path, const duckdb::RemoveDirectoryOptions &options,
                                 Opener opener) override;
    //! Throws where an object's name is none that DuckDB's paths lead to: whoever lists the files of a directory
    //! would take it for another one.
    bool ListFiles(const std::string &path, const std::function<void(const std::string &, bool)> &callback,
                   duckdb::FileOpener *opener) override;

  protected:
    bool SupportsGlobExtended() const override { return true; }
    duckdb::unique_ptr<duckdb::MultiFileList>
    GlobFilesExtended(const std::string &pattern, const duckdb::FileGlobInput &input, Opener opener) override;
};

} // namespace rawduck_ceph
