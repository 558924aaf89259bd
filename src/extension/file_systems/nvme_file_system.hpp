//! nvme://<target>/<file>: files on a volume, which lies on a raw device, a regular file or memory.
#pragma once

#include "extension/file_systems/storage_file_system.hpp"

namespace rawduck {

//! Volumes are mounted by being used: an open file keeps
//! its volume mounted, everything else mounts it briefly.
class NvmeFileSystem final : public StorageFileSystem {
  public:
    bool CanHandleFile(const std::string &path) override;
    std::string GetName() const override { return "NvmeFileSystem"; }
    //! With the target's symbolic links resolved, so that
    //! two spellings of one database are one path to DuckDB.
    std::string CanonicalizePath(const std::string &path, Opener opener) override;

    duckdb::unique_ptr<duckdb::FileHandle> OpenFile(const std::string &path, duckdb::FileOpenFlags flags,
                                                    Opener opener) override;
    duckdb::optional<duckdb::FileMetadata> GetStatsIfExists(const duckdb::OpenFileInfo &file,
                                                            Opener opener) override;
    bool FileExists(const std::string &path, Opener opener) override;
    void RemoveFile(const std::string &path, Opener opener) override;
    bool TryRemoveFile(const std::string &path, Opener opener) override;
    void RemoveFiles(const duckdb::vector<std::string> &paths, Opener opener) override;
    void MoveFile(const std::string &source, const std::string &target, Opener opener) override;

    bool DirectoryExists(const std::string &path, Opener opener) override;
    bool CreateDirectoryExtended(const std::string &path, const duckdb::CreateDirectoryOptions &options,
                                 Opener opener) override;
    bool RemoveDirectoryExtended(const std::string &path, const duckdb::RemoveDirectoryOptions &options,
                                 Opener opener) override;
    bool ListFiles(const std::string &path, const std::function<void(const std::string &, bool)> &callback,
                   duckdb::FileOpener *opener) override;
    duckdb::vector<duckdb::OpenFileInfo> Glob(const std::string &pattern,
                                              duckdb::FileOpener *opener) override;

  protected:
    std::string WhyNotMapped() const override { return "a volume has no file system that could do so"; }
};

} // namespace rawduck
