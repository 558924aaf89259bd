//! The argument that says where a stream is: a path of an ordinary file, rados://<pool>/<name>, or "fd:<number>", a descriptor of
//! the process, which is how a shell's pipes are reached.
#pragma once

#include "volume/backup/stream/stream_bytes.hpp"
#include "volume/names/path.hpp"
#include "volume/registry.hpp"

#include "duckdb/common/file_system.hpp"
#include "duckdb/main/client_context.hpp"

#include <memory>

namespace rawduck {

class StreamArgument {
  public:
    //! Throws PermissionException for what DuckDB's settings forbid, before anything is opened, and Error.
    StreamArgument(duckdb::ClientContext &context, const std::string &stream);
    std::unique_ptr<ByteSink> OpenSink() const;
    std::unique_ptr<ByteSource> OpenSource() const;

  private:
    duckdb::FileSystem &files_;
    const Interrupted interrupted_;
    int fd_ = -1; //!< not negative: it is this descriptor
    std::string path_;
};

//! An absolute path of an ordinary file, which DuckDB's settings allow.
std::string AllowedLocalPath(duckdb::ClientContext &context, const std::string &path);
//! The path of a file on a volume, which they allow.
VolumePath AllowedVolumePath(duckdb::ClientContext &context, const std::string &path);

} // namespace rawduck
