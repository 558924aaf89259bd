//! A stream in Ceph: objects of 16 MiB, since an object is written whole, with what the stream is named by in front of their
//! numbers: rados://pool/monday.000000, rados://pool/monday.000001, …
#pragma once

#include "volume/backup/stream/stream_bytes.hpp"

#include "duckdb/common/file_system.hpp"

#include <memory>
#include <string>
#include <vector>

namespace rawduck {

bool IsObjectsPath(const std::string &path);

//! Makes new objects, each of which Ceph has on all replicas once it is written. Those that it made are removed unless it is
//! finished.
class ObjectsSink final : public ByteSink {
  public:
    //! `files`: DuckDB's, which ask its settings about each path. Throws Error EXISTS where a stream has the name.
    ObjectsSink(duckdb::FileSystem &files, std::string path);
    ~ObjectsSink() override;
    void Write(const void *data, uint64_t length) override;
    void Finish() override;

  private:
    void WriteObject();
    duckdb::FileSystem &files_;
    const std::string path_;
    std::vector<char> buffer_; //!< of the next object
    uint64_t objects_ = 0;     //!< written
    bool finished_ = false;
};

//! Reads objects in their order until there is no further one. Whether the stream is whole is for its reader to say.
class ObjectsSource final : public ByteSource {
  public:
    //! Throws Error NOT_FOUND where there is no first one.
    ObjectsSource(duckdb::FileSystem &files, std::string path);
    uint64_t Read(void *data, uint64_t length) override;
    const std::string &Name() const override { return path_; }

  private:
    bool OpenNext();
    duckdb::FileSystem &files_;
    const std::string path_;
    duckdb::unique_ptr<duckdb::FileHandle> object_; //!< null: there is no further one
    uint64_t next_ = 0;
};

} // namespace rawduck
