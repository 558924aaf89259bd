//! Verification of everything on a volume, without mounting it and without writing to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rawduck {

struct CheckFinding {
    enum class Severity { OK, WARNING, ERROR } severity = Severity::OK;
    std::string what; //!< "superblock 0", "snapshot", "log", "file sales.duckdb", "space"
    std::string detail;
};

//! Checks both superblocks, the snapshot, every log record, that extents are inside the data area, reachable
//! and do not overlap, that sizes are covered, and the headers of database files. Takes a shared lock. Throws
//! Error only when the target cannot be read at all; damage is reported as findings.
std::vector<CheckFinding> CheckVolume(const std::string &target_name);

} // namespace rawduck
