//! Devices in process memory, as strict about alignment and command size as real ones.
#pragma once

#include "io/device/device.hpp"
#include "io/device/device_options.hpp"

#include <memory>
#include <string>

namespace rawduck {

//! Memory targets live in this process until they are dropped. Creating one that exists replaces nothing and
//! throws EXISTS. `memory_alignment` and `max_transfer_bytes` let tests demand what a real device would.
struct MemoryTargetOptions {
    uint64_t capacity_bytes = 0;
    uint32_t lba_size = 4096;
    uint32_t memory_alignment = 4;
    uint32_t max_transfer_bytes = 256 * 1024;
};
void CreateMemoryTarget(const std::string &name, const MemoryTargetOptions &options);
bool MemoryTargetExists(const std::string &name);
void DropMemoryTarget(const std::string &name);

//! Opens a target made by CreateMemoryTarget. Throws Error NOT_FOUND.
std::unique_ptr<Device> OpenMemoryDevice(const Target &target, const DeviceOptions &options);

} // namespace rawduck
