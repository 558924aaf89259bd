//! What the kernel says of a file or block device. See also InspectTarget in target.hpp.
#pragma once

#include "device/target.hpp"

namespace rawduck {

//! What every user may know of a block device, without opening it. Numbers are 0 where sysfs does not tell.
TargetInfo InfoFromSysfs(const std::string &sysfs_directory);

} // namespace rawduck
