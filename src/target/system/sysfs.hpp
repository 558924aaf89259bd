//! Attributes of block devices in /sys.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

namespace rawduck {

//! Positions and lengths in /sys are counted in these, whatever the logical block size.
constexpr uint64_t SYSFS_SECTOR_BYTES = 512;

// What a device is used for is read here, so no answer must not pass for the answer that there is nothing: where no
// descriptor is left, these throw Error DESCRIPTORS.

//! Contents without surrounding white space; empty when the attribute is missing or cannot be read.
std::string ReadAttribute(const std::string &path);
//! False when the attribute is missing or not a number.
bool ReadNumber(const std::string &path, uint64_t &value);
//! Names in a directory, sorted, without "." and ".."; empty when there is none.
std::vector<std::string> ListDirectory(const std::string &path);

//! "259:0"
std::string DeviceNumberText(dev_t number);
//! The other way round; 0 when it is none.
dev_t DeviceNumber(const std::string &text);
//! Directory of a block device (a disk or a partition), such
//! as /sys/devices/.../block/nvme0n1. Empty when unknown.
std::string SysfsDirectory(dev_t number);
bool IsPartition(const std::string &sysfs_directory);
//! The directory of the whole disk, where queue/ and device/ are; the argument itself when it is a disk.
std::string DiskDirectory(const std::string &sysfs_directory);
//! Last component: the kernel's name of the device.
std::string BaseName(const std::string &path);

} // namespace rawduck
