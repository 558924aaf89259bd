//! Volumes that stay mounted from one statement to the next.
#pragma once

#include "volume/registry.hpp"

namespace duckdb {
class ClientContext;
}

namespace rawduck {

//! Until the transaction of the user ends, so that many files are removed, renamed or copied in one mount. Outside of one
//! (autocommit) nothing is kept. An empty pin is left alone. Thread-safe.
void KeepUntilCommit(duckdb::ClientContext &context, const VolumePin &volume);

//! The same for the volume of a path, if it is one on a volume that is mounted in this process.
void KeepVolumeOf(duckdb::ClientContext &context, const std::string &path);

} // namespace rawduck
