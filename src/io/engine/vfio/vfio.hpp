//! The vfio engine: an NVMe driver of our own, on a controller that the kernel has handed out (vfio-pci).
//!
//! A controller takes commands only for memory that it was told of and that stays where it is. DuckDB's does not:
//! its data is copied through buffers. That costs more than the kernel's driver does for large reads, and less
//! for small commands (docs/devices.md). So no target gets this engine unless it is asked for by name.
#pragma once

#include "io/device/device.hpp"
#include "io/device/device_options.hpp"
#include "target/target.hpp"

namespace rawduck {

//! Controllers are shared by the targets of a process. Throws Error: see VfioFunction and Controller, and
//! RequireUsable.
std::unique_ptr<Device> OpenVfioDevice(const Target &target, const DeviceOptions &options);

} // namespace rawduck
