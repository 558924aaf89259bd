//! The io_uring_cmd engine: NVMe commands through a ring, asynchronously and past the block layer.
#pragma once

#include "io/device/device.hpp"
#include "io/device/device_options.hpp"
#include "target/target.hpp"

namespace rawduck {

//! Empty when such rings can be made; otherwise a clause that says why not and what to do.
std::string IoUringCmdObstacle();

//! `target` is /dev/ngXnY. Requires that IoUringCmdObstacle is empty.
std::unique_ptr<Device> OpenIoUringCmdDevice(const Target &target, const DeviceOptions &options,
                                             const std::string &reason);

} // namespace rawduck
