//! Controllers that libxnvme drives in this process, through SPDK, in place of the engine vfio.
#pragma once

#include "io/device/device.hpp"
#include "io/device/device_options.hpp"
#include "target/target.hpp"

namespace rawduck {

//! `target` is a VFIO_FUNCTION, `backend` "spdk". Throws Error: UNSUPPORTED (no such backend, no huge pages,
//! after fork(), see VfioGroup), LOCKED (another driver has the controller), PERMISSION, NOT_FOUND, IO.
std::unique_ptr<Device> OpenXnvmeController(const Target &target, const DeviceOptions &options,
                                            const std::string &backend);

} // namespace rawduck
