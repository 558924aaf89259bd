//! OpenDevice: which engine serves a target.
#include "common/error.hpp"
#include "io/device.hpp"
#include "io/engines/io_uring.hpp"
#include "io/engines/memory.hpp"
#include "io/engines/posix.hpp"

namespace rawduck {

std::unique_ptr<Device> OpenDevice(const Target &target, const DeviceOptions &options) {
    const std::string &engine = options.engine;
    if (engine != "auto" && engine != "io_uring" && engine != "posix" && engine != "memory") {
        throw Error(ErrorCode::INVALID,
                    target.name + ": engine '" + engine +
                        "' is unknown; known engines: auto, io_uring, posix (memory targets "
                        "always use memory)");
    }
    if (target.kind == TargetKind::MEMORY) {
        return OpenMemoryDevice(target, options);
    }
    if (engine == "memory") {
        throw Error(ErrorCode::INVALID, target.name +
                                            ": engine 'memory' serves memory:<name> targets only; use auto, "
                                            "io_uring or posix");
    }
    if (target.kind == TargetKind::NVME_CHARACTER_DEVICE) {
        throw Error(ErrorCode::UNSUPPORTED,
                    target.name + ": NVMe passthrough is not available in this version; use the "
                                  "namespace's block device (/dev/nvmeXnY)");
    }
    if (engine == "posix") {
        return OpenPosixDevice(target, options, "asked for");
    }
    const std::string obstacle = WhyNoIoUring();
    if (obstacle.empty()) {
        return OpenIoUringDevice(target, options,
                                 engine == "auto" ? "auto: the kernel offers it" : "asked for");
    }
    if (engine == "io_uring") {
        throw Error(ErrorCode::UNSUPPORTED, target.name + ": engine 'io_uring' is not available: " +
                                                obstacle + ", or use engine 'posix'");
    }
    return OpenPosixDevice(target, options, "auto: no io_uring: " + obstacle);
}

} // namespace rawduck
