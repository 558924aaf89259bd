//! The two device nodes of an NVMe namespace: its block device and its generic character device.
//!
//! Their numbers need not agree (/dev/ng0n1 may be /dev/nvme1n1: one counts controllers, the other
//! subsystems), so the pair is found in sysfs, where both are children of one directory.
#pragma once

#include <string>
#include <sys/types.h>

namespace rawduck {

//! Whether a kernel name is that of a generic character device ("ng0n1") or of a controller ("nvme0").
bool IsNvmeGenericName(const std::string &name);
bool IsNvmeControllerName(const std::string &name);

//! Path of the block device beside a generic character
//! device, such as /dev/nvme0n1. Empty when there is none.
std::string NvmeBlockPath(dev_t generic);
//! Path of the generic character device beside a block device. Empty when there is none: it is not an NVMe
//! namespace, it is a partition of one, or the kernel is older than Linux 5.13.
std::string NvmeGenericPath(dev_t block);
//! Whether a block device is an NVMe namespace or a partition of one.
bool IsNvmeBlockDevice(const std::string &sysfs_directory);

} // namespace rawduck
