//! The argument that says where a stream is: a path of an ordinary file, or "fd:<number>", a descriptor of the process, which is
//! how a shell's pipes are reached.
#pragma once

#include "volume/backup/stream_bytes.hpp"
#include "volume/names/path.hpp"
#include "volume/registry.hpp"

#include "duckdb/main/client_context.hpp"

#include <memory>

namespace rawduck {

// Both throw Error, and PermissionException for what DuckDB's settings forbid.
std::unique_ptr<ByteSink> OpenSink(duckdb::ClientContext &context, const std::string &stream);
std::unique_ptr<ByteSource> OpenSource(duckdb::ClientContext &context, const std::string &stream);

//! An absolute path of an ordinary file, which DuckDB's settings allow.
std::string AllowedLocalPath(duckdb::ClientContext &context, const std::string &path);
//! The path of a file on a volume, which they allow.
VolumePath AllowedVolumePath(duckdb::ClientContext &context, const std::string &path);

} // namespace rawduck
