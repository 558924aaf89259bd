//! The memory engine: a device in process memory, as strict about alignment and command size as a real one.
#pragma once

#include "io/device.hpp"

namespace rawduck {

//! Opens a target made by CreateMemoryTarget. Throws Error NOT_FOUND.
std::unique_ptr<Device> OpenMemoryDevice(const Target &target, const DeviceOptions &options);

} // namespace rawduck
