//! The size limit of one command.
#pragma once

#include "io/device/device.hpp"
#include "io/device/device_options.hpp"

namespace rawduck {

//! What the user asked for, or 256 KiB within `device_limit` (bytes, 0 when unknown). Throws Error INVALID
//! when the wish is not a multiple of the LBA size, or absurd.
uint32_t CommandSizeLimit(const std::string &target_name, const DeviceOptions &options, uint32_t device_limit,
                          uint32_t lba_size);

} // namespace rawduck
