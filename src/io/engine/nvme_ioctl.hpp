//! The nvme_ioctl engine: NVMe commands on the calling thread, one at a time, on any kernel.
#pragma once

#include "io/device/device.hpp"
#include "io/device/device_options.hpp"
#include "target/target.hpp"

namespace rawduck {

//! `target` is /dev/ngXnY or /dev/nvmeXnY.
std::unique_ptr<Device> OpenNvmeIoctlDevice(const Target &target, const DeviceOptions &options,
                                            const std::string &reason);

} // namespace rawduck
