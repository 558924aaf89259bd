//! What the engines share that drive an NVMe controller without the kernel: vfio, and some of xNVMe's.
#pragma once

#include "target/inspect.hpp"
#include "target/nvme/nvme_commands.hpp"
#include "target/target.hpp"

namespace rawduck {

//! What the controller says of the target's namespace, but for what depends on the driver: memory_alignment and
//! max_passthrough_bytes. Throws Error NOT_FOUND where it has no such namespace, UNSUPPORTED where a volume cannot
//! lie on it, and IO.
TargetInfo AskController(const NvmeRun &run, const Target &target);

} // namespace rawduck
