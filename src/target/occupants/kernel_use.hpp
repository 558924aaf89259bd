//! Who uses a target right now: mounts, swap, device mapper and RAID, loop devices, exports. Never to be overwritten.
#pragma once

#include "target/occupants/claim_check.hpp"
#include "target/target.hpp"

#include <string>
#include <sys/stat.h>
#include <vector>

namespace rawduck {

//! Of the target itself and its relatives, leaving out loop devices over it. `status` is the target's.
std::vector<std::string> FindDirectUses(const Target &target, const struct stat &status);

//! With loop devices. `status` is the target's. Clauses as in Occupant::what.
std::vector<std::string> FindKernelUses(const Target &target, const struct stat &status, ClaimCheck claim);

//! Such a clause when somebody has mounted the loop device, holds it exclusively or reads it; empty when not.
std::string UseOfLoop(const std::string &name);

} // namespace rawduck
