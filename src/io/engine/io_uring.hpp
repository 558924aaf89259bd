//! The io_uring engine: one ring per queue, many commands in flight, one system call per batch.
#pragma once

#include "io/device/device.hpp"
#include "io/device/device_options.hpp"
#include "target/target.hpp"

namespace rawduck {

//! Empty when rings can be made; otherwise a clause that says why not and what to do, such as "it is disabled
//! by the administrator (kernel.io_uring_disabled is 2); set it to 0".
std::string IoUringObstacle();

//! Requires that IoUringObstacle is empty.
std::unique_ptr<Device> OpenIoUringDevice(const Target &target, const DeviceOptions &options,
                                          const std::string &reason);

} // namespace rawduck
