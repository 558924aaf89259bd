//! Volumes that stay mounted from one statement to the next.
#pragma once

#include "volume/registry.hpp"

namespace duckdb {
class ClientContext;
}

namespace rawduck {

//! Until the transaction of the user ends, so that many files are removed, renamed or copied in one mount. The volume is open for
//! writing meanwhile, as with an attached database. Outside of a transaction (autocommit), where `volume` is empty, and where it
//! cannot be done, nothing is kept, which only takes longer. Thread-safe.
void KeepUntilCommit(duckdb::ClientContext &context, const VolumePin &volume) noexcept;

//! The same for the volume of a path, if it is one on a volume that is mounted in this process.
void KeepVolumeOf(duckdb::ClientContext &context, const std::string &path) noexcept;

} // namespace rawduck
