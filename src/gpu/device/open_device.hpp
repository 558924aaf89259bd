//! Which device a person means.
#pragma once

#include "gpu/device/device.hpp"

namespace rawduck::gpu {

//! "emulated", or a GPU by its number: "0", "cuda", "cuda:0". "" is what RAWDUCK_GPU in the environment says, and "0"
//! without that. Throws Error where there is none, with what to do. Thread-safe.
std::shared_ptr<Device> OpenDevice(const std::string &name);

} // namespace rawduck::gpu
