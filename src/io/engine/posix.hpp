//! The posix engine: pread and pwrite on the calling thread, on any kernel.
#pragma once

#include "io/device/device.hpp"
#include "io/device/device_options.hpp"
#include "target/target.hpp"

namespace rawduck {

//! One command on the calling thread; returns what Command::result becomes. A block device is flushed after a
//! write with FUA, whether it has FUA or not: the kernel does so for synchronous writes.
int64_t TransferNow(int fd, const Command &command);

//! A queue of depth 1 that runs them so.
std::unique_ptr<Queue> MakePosixQueue(int fd);

std::unique_ptr<Device> OpenPosixDevice(const Target &target, const DeviceOptions &options,
                                        const std::string &reason);

} // namespace rawduck
