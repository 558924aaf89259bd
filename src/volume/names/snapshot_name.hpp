//! What snapshots are called: a snapshot of sales.duckdb that is named monday is the file sales.duckdb@monday, with its
//! logs beside it, where DuckDB looks for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rawduck {

constexpr size_t SNAPSHOT_NAME_BYTES_MAX = 64;

//! What stands for the last durable state of a file, beside whoever writes to it.
constexpr const char *LATEST = "latest";

//! A valid name has 1 to 64 letters, digits, '-', '_', '.' and ':', and does not end as a log's. "latest" is no name, and
//! none begins with "latest-". Throws Error INVALID naming what is wrong.
void CheckSnapshotName(const std::string &name);

//! The snapshot that is kept for the reader with this number (ReaderLock): "latest-00000000002a".
std::string ReaderSnapshot(uint64_t number);
//! The number in such a name.
std::optional<uint64_t> ReaderOf(const std::string &snapshot);

//! The file of a snapshot.
std::string SnapshotFileName(const std::string &file, const std::string &snapshot);

//! The parts of such a name. `snapshot` is empty when there is no '@'.
struct SnapshotName {
    std::string file, snapshot;
};
SnapshotName SplitSnapshotName(const std::string &name);
//! Of a stream.
struct ReceivedSnapshot {
    std::string name;       //!< that its file gets; empty: no snapshot is made
    int64_t created_us = 0; //!< when it was made, where it was made
};

//! What a reader of this file reads: "sales.duckdb" for "sales.duckdb@latest", otherwise the file itself.
std::string SourceOfReader(const std::string &file);

//! What a snapshot that was received has beside it: which one it was where it was sent from. Part of the snapshot, as logs are.
std::string OriginNameOf(const std::string &snapshot_file);
//! The snapshot that has this beside it; empty when it is no such name.
std::string SnapshotOfOrigin(const std::string &name);

//! What is received into a file has this name until it is whole, and OriginNameOf(this) beside it.
std::string ReceivingNameOf(const std::string &file);
//! Of such a name, or of that of a log beside it: what lies beside it while it is received. Empty when it is no such name.
std::string OriginOfReceiving(const std::string &name);

//! The logs that a database may have.
std::vector<std::string> LogNamesOf(const std::string &database);
//! The database whose log has this name; empty when it is not that of a log.
std::string DatabaseOfLog(const std::string &name);

} // namespace rawduck
