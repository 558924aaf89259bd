//! What the kernel says of a file or block device. See also InspectTarget in target.hpp.
#pragma once

#include "device/target.hpp"

namespace rawduck {

//! What every user may know of a block device, without opening it. All zero for an empty directory name.
TargetInfo InfoFromSysfs(const std::string &sysfs_directory);

} // namespace rawduck
