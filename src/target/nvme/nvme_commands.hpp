//! The way of single NVMe commands to a namespace and its controller: through a node of the kernel, or a driver of
//! our own.
#pragma once

#include <cstdint>
#include <functional>
#include <linux/nvme_ioctl.h>

namespace rawduck {

enum class NvmeQueueKind { ADMIN, IO };

//! Runs one command on the calling thread. 0, a positive NVMe status or a negative errno; `result` of the command
//! becomes what the device returned.
using NvmeRun = std::function<int(NvmeQueueKind kind, nvme_passthru_cmd64 &command)>;

//! Through an open namespace, which must outlive the function: /dev/ngXnY or /dev/nvmeXnY.
NvmeRun RunThroughNode(int fd);

} // namespace rawduck
