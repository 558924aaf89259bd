//! Checks everything on a volume without mounting it, and repairs what can be repaired without guessing.
#pragma once

#include "common/interrupted.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace rawduck {

struct CheckFinding {
    enum class Severity { OK, WARNING, ERROR } severity = Severity::OK;
    std::string what; //!< "superblock 0", "metadata", "checkpoint", "log", "file sales.duckdb", "space"
    std::string detail;
    std::string repair; //!< what RepairVolume does about it; empty: nothing
};

//! Checks both superblocks, every page of the metadata trees, all trees against each other and against the bitmaps of
//! space and the map of pages, every log record, that extents are inside the data area and do not overlap, that sizes
//! are covered, and the headers of database files. Takes a shared lock. Where the volume is open for writing, looks at
//! the last durable state that it can read while it is written to. Throws Error when the target cannot be read at all, or LOCKED
//! when it is in use by something else, or changes faster than it can be read, or INTERRUPTED when `interrupted` says so meanwhile; damage is reported as findings.
std::vector<CheckFinding> CheckVolume(const std::string &target_name,
                                      const Interrupted &interrupted = nullptr);

//! Does what the findings say under `repair`, and nothing that needs a guess about user data: it makes a checkpoint, as a
//! writing mount does. That rewrites a damaged or outdated superblock from the valid one and drops an unfinished record
//! at the end of the log, which was never acknowledged. A volume with any other damage stays unchanged. There is no space
//! to free: what no file covers is free. Takes the exclusive lock;
//! returns what was done. Throws Error as CheckVolume, and PERMISSION, READ_ONLY, CORRUPT, UNSUPPORTED.
std::vector<std::string> RepairVolume(const std::string &target_name);

} // namespace rawduck
