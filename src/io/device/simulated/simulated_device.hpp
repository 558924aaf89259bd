//! The simulated engine: the twin of the engines for real devices, for tests and research. Commands complete
//! out of order, nothing is durable before a flush that follows its completion (or FUA), and faults can be
//! injected: see SimulatedMedium. From SQL it is nvme_simulate() (CONTRIBUTING.md).
#pragma once

#include "io/device/device_options.hpp"
#include "io/device/simulated/simulated_medium.hpp"
#include "target/target.hpp"

namespace rawduck {

//! Simulated targets ("simulated:<name>") live in this process
//! until they are replaced or the process ends. Thread-safe.

//! Makes a target whose bytes are zeros. A target of this name is replaced. Throws Error INVALID (options),
//! or LOCKED while the old one is open.
void CreateSimulatedTarget(const std::string &name, SimulatedOptions options);
//! Gives a name to a medium, such as one that survived a power cut. Throws Error LOCKED.
void PutSimulatedTarget(const std::string &name, std::shared_ptr<SimulatedMedium> medium);
//! Throws Error NOT_FOUND.
std::shared_ptr<SimulatedMedium> FindSimulatedTarget(const std::string &name);

std::unique_ptr<Device> OpenSimulatedDevice(std::shared_ptr<SimulatedMedium> medium, const Target &target,
                                            const DeviceOptions &options);

} // namespace rawduck
