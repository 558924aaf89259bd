//! The xNVMe engine, 'xnvme:<interface>': commands through libxnvme's
//! interfaces, on files, block devices and NVMe namespaces, and through its own drivers in this process.
#pragma once

#include "io/device/device.hpp"
#include "io/device/device_options.hpp"
#include "target/target.hpp"

namespace rawduck {

//! "xnvme", with or without an interface after a colon.
bool IsXnvmeEngine(const std::string &engine);
//! The names after the colon.
const std::vector<std::string> &XnvmeInterfaceNames();
//! Throws Error INVALID, or UNSUPPORTED for what xNVMe has but cannot carry a volume, unless it names one.
void RequireXnvmeInterface(const std::string &engine, const std::string &subject);

//! Empty when the engine can be used; otherwise a clause that says why not and how to get it.
std::string XnvmeObstacle();

//! Whether this interface sends NVMe commands to `target` and therefore wants a whole namespace.
bool XnvmeSendsNvmeCommands(const std::string &engine, const Target &target);
//! Whether it drives a controller without the kernel: targets vfio:... only.
bool XnvmeDrivesController(const std::string &engine);
//! Of one that sends NVMe commands through the kernel: whether through the generic character device only.
bool XnvmeWantsGenericDevice(const std::string &engine);

//! Throws Error UNSUPPORTED where the engine is absent or the interface does not fit the target.
std::unique_ptr<Device> OpenXnvmeDevice(const Target &target, const DeviceOptions &options);

} // namespace rawduck
