//! The only file system of a worker's DuckDB. It has one file per running request, which is the
//! object. Nothing else can be opened, and nothing can be listed or written.
#pragma once

#include "ceph/parquet/object_source.hpp"

#include "duckdb/common/file_system.hpp"

#include <mutex>
#include <thread>
#include <unordered_map>

namespace rawduck_ceph {

class ObjectFileSystem final : public duckdb::FileSystem {
  public:
    //! Makes `object` readable by the calling thread until the mount is destroyed. The path is unique, so
    //! that no cache can confuse two objects.
    class Mount {
      public:
        Mount(ObjectFileSystem &files, ObjectSource &object);
        ~Mount();
        Mount(const Mount &) = delete;
        const std::string &Path() const { return path_; }

      private:
        ObjectFileSystem &files_;
        std::string path_;
    };

    duckdb::unique_ptr<duckdb::FileHandle> OpenFile(const std::string &path, duckdb::FileOpenFlags flags,
                                                    duckdb::optional_ptr<duckdb::FileOpener> opener) override;
    void Read(duckdb::FileHandle &handle, void *buffer, int64_t nr_bytes, duckdb::idx_t location) override;
    int64_t GetFileSize(duckdb::FileHandle &handle) override;
    duckdb::timestamp_t GetLastModifiedTime(duckdb::FileHandle &handle) override;
    duckdb::FileType GetFileType(duckdb::FileHandle &) override {
        return duckdb::FileType::FILE_TYPE_REGULAR;
    }
    duckdb::FileMetadata Stats(duckdb::FileHandle &handle) override;
    bool FileExists(const std::string &path, duckdb::optional_ptr<duckdb::FileOpener> opener) override;
    bool DirectoryExists(const std::string &, duckdb::optional_ptr<duckdb::FileOpener>) override {
        return false;
    }
    duckdb::vector<duckdb::OpenFileInfo> Glob(const std::string &path, duckdb::FileOpener *opener) override;
    bool CanSeek() override { return true; }
    //! DuckDB then reads whole column chunks, not pages.
    bool OnDiskFile(duckdb::FileHandle &) override { return false; }
    std::string GetName() const override { return "ObjectFileSystem"; }

  private:
    struct Mounted {
        ObjectSource *object;
        std::thread::id thread;
    };
    //! Throws when nothing is mounted at this path, or on another thread than the one that mounted it.
    Mounted &Find(const std::string &path);

    std::mutex mutex_; //!< guards what follows; no other lock is taken while it is held
    uint64_t next_ = 0;
    std::unordered_map<std::string, Mounted> mounted_;
};

} // namespace rawduck_ceph
