//! The properties of a file on a volume.
#pragma once

#include "volume/format/file_kind.hpp"
#include "volume/format/record.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace rawduck {

struct ExtentInfo {
    uint64_t file_offset = 0, device_offset = 0, length = 0; //!< bytes
};

struct FileInfo {
    std::string name;
    FileKind kind = FileKind::OTHER;
    uint64_t size = 0, allocated = 0; //!< bytes
    int64_t modified_us = 0;          //!< microseconds since 1970-01-01 UTC
    int64_t created_us = 0;
    bool snapshot = false;   //!< nothing is written to it
    uint64_t not_shared = 0; //!< bytes of what is allocated that no other file has
    std::vector<ExtentInfo> extents;
};

//! Where the bytes of a file are. Those behind the last whole LBA are in metadata, whatever extents and holes say.
struct FileLayout {
    uint64_t size = 0;               //!< bytes
    std::vector<ExtentInfo> extents; //!< in file order, from its start without a gap
    std::vector<Hole> holes; //!< sorted and disjoint: these bytes are zeros, whatever the target holds
};

//! A snapshot, with its logs.
struct SnapshotInfo {
    std::string file, snapshot; //!< their names
    FileKind kind = FileKind::OTHER;
    uint64_t size = 0;       //!< bytes
    uint64_t not_shared = 0; //!< bytes that dropping it would free
    int64_t created_us = 0;  //!< microseconds since 1970-01-01 UTC
};

} // namespace rawduck
