//! The contents of all databases on a volume, of their snapshots and logs.
#pragma once

#include "volume/check.hpp"

#include "duckdb/main/client_context.hpp"

#include <string>
#include <vector>

namespace rawduck {

//! Reads each as it is durable, also while it is written to: what a writer has attached, beside it. What others keep from being
//! read is a warning. Throws Error as nvme_files, and INTERRUPTED.
std::vector<CheckFinding> CheckVolumeContents(duckdb::ClientContext &context, const std::string &target);

} // namespace rawduck
