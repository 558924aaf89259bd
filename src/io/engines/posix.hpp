//! The posix engine: pread and pwrite on the calling thread, on any kernel.
#pragma once

#include "io/device.hpp"

namespace rawduck {

std::unique_ptr<Device> OpenPosixDevice(const Target &target, const DeviceOptions &options,
                                        const std::string &reason);

} // namespace rawduck
