//! Who uses a target right now: mounts, swap, device mapper and RAID, loop devices. Never to be overwritten.
#pragma once

#include "device/target.hpp"

#include <sys/stat.h>

namespace rawduck {

//! `status` is the target's. Clauses as in Occupant::what.
std::vector<std::string> FindKernelUses(const Target &target, const struct stat &status, ClaimCheck claim);

//! Loop devices over a regular file that somebody has mounted, or holds exclusively. Clauses as above.
std::vector<std::string> FindUsedLoops(const Target &target);

} // namespace rawduck
