//! direct://<path>: ordinary files on ordinary file systems, past the page cache. The bytes are the same as
//! stock DuckDB's, which can open the same files without this extension.
#pragma once

#include "extension/file_systems/storage_file_system.hpp"

namespace rawduck {

//! Only reading and writing differ from DuckDB's own local file system. Names, directories and wildcards are
//! left to it, with the scheme taken off and put back.
class DirectFileSystem final : public StorageFileSystem {
  public:
    DirectFileSystem();

    bool CanHandleFile(const std::string &path) override;
    std::string GetName() const override { return "DirectFileSystem"; }
    std::string CanonicalizePath(const std::string &path, Opener opener) override;

    duckdb::unique_ptr<duckdb::FileHandle> OpenFile(const std::string &path, duckdb::FileOpenFlags flags,
                                                    Opener opener) override;
    duckdb::optional<duckdb::FileMetadata> GetStatsIfExists(const duckdb::OpenFileInfo &file,
                                                            Opener opener) override;
    bool FileExists(const std::string &path, Opener opener) override;
    void RemoveFile(const std::string &path, Opener opener) override;
    bool TryRemoveFile(const std::string &path, Opener opener) override;
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
    std::string WhyNotMapped() const override { return "a mapping goes through the page cache"; }

  private:
    duckdb::unique_ptr<duckdb::FileSystem> local_;
};

} // namespace rawduck
