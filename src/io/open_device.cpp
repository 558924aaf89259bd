#include "io/open_device.hpp"

//! OpenDevice: which engine serves a target.
#include "common/error.hpp"
#include "io/device/memory_device.hpp"
#include "io/device/simulated/simulated_device.hpp"
#include "io/engine/io_uring.hpp"
#include "io/engine/io_uring_cmd.hpp"
#include "io/engine/nvme_ioctl.hpp"
#include "io/engine/posix.hpp"
#include "io/engine/vfio/vfio.hpp"
#include "io/engine/xnvme/xnvme.hpp"
#include "target/inspect.hpp"
#include "target/nvme/nvme_node.hpp"
#include "target/open_target.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <cerrno>

namespace rawduck {
namespace {

bool IsPassthrough(const std::string &engine) {
    return engine == "io_uring_cmd" || engine == "nvme_ioctl";
}

//! Throws unless the target can carry NVMe commands. A partition cannot: its commands would address the whole
//! namespace, and so the neighbours.
void RequireNamespace(const Target &target, const std::string &engine) {
    auto refuse = [&](const std::string &why) {
        throw Error(ErrorCode::UNSUPPORTED, target.name + ": engine '" + engine +
                                                "' sends NVMe commands, and " + why +
                                                "; use auto, io_uring or posix");
    };
    if (target.kind == TargetKind::REGULAR_FILE) {
        refuse("this is a regular file");
    }
    struct stat status;
    if (stat(BlockDeviceOf(target).path.c_str(), &status) != 0) {
        ThrowOpenError(target.name, "stat", errno);
    }
    const std::string directory = SysfsDirectory(status.st_rdev);
    if (!IsNvmeBlockDevice(directory)) {
        refuse("this is not an NVMe device");
    }
    if (IsPartition(directory)) {
        refuse("this is a partition, for which they would reach beyond its bounds");
    }
}

//! Throws when the target is a namespace's character device, which knows NVMe commands only.
void RequireBlockDevice(const Target &target, const std::string &engine) {
    if (target.kind == TargetKind::NVME_CHARACTER_DEVICE) {
        throw Error(ErrorCode::UNSUPPORTED, target.name + ": engine '" + engine +
                                                "' needs a block device; use " + target.block_path +
                                                ", or engine io_uring_cmd or nvme_ioctl");
    }
}

//! The generic character device of a namespace that was named by its block device.
Target GenericDeviceOf(const Target &target, const std::string &engine) {
    if (target.kind == TargetKind::NVME_CHARACTER_DEVICE) {
        return target;
    }
    struct stat status;
    if (stat(target.path.c_str(), &status) != 0) {
        ThrowOpenError(target.name, "stat", errno);
    }
    const std::string path = NvmeGenericPath(status.st_rdev);
    if (path.empty()) {
        throw Error(ErrorCode::UNSUPPORTED, target.name + ": engine '" + engine +
                                                "' needs the namespace's generic "
                                                "character device (/dev/ngXnY), and the kernel shows none; "
                                                "run Linux 5.13 or newer, or use nvme_ioctl or io_uring");
    }
    Target generic = ResolveTarget(path);
    if (generic.identity != target.identity) {
        throw Error(ErrorCode::IO,
                    target.name + ": " + path + " is not the same namespace; name it directly");
    }
    return generic;
}

std::unique_ptr<Device> OpenPassthrough(const Target &target, const DeviceOptions &options) {
    const std::string &engine = options.engine;
    RequireNamespace(target, engine);
    if (engine == "nvme_ioctl") {
        return OpenNvmeIoctlDevice(target, options, "asked for");
    }
    const std::string obstacle = IoUringCmdObstacle();
    if (obstacle.empty()) {
        const bool chosen = engine == "auto";
        return OpenIoUringCmdDevice(
            GenericDeviceOf(target, "io_uring_cmd"), options,
            chosen ? "auto: the target is an NVMe character device, and the kernel's io_uring "
                     "carries NVMe commands"
                   : "asked for");
    }
    if (engine == "io_uring_cmd") {
        throw Error(ErrorCode::UNSUPPORTED, target.name + ": engine 'io_uring_cmd' is not available: " +
                                                obstacle + ", or use engine 'nvme_ioctl'");
    }
    return OpenNvmeIoctlDevice(target, options, "auto: no io_uring_cmd: " + obstacle);
}

//! `auto` on a block device takes passthrough when that is what placement needs. Null otherwise; `obstacle`
//! then becomes a clause that says why, where the namespace does have flexible data placement.
std::unique_ptr<Device> TryPlacement(const Target &target, const DeviceOptions &options,
                                     std::string &obstacle) {
    struct stat status;
    if (target.kind != TargetKind::BLOCK_DEVICE || stat(target.path.c_str(), &status) != 0 ||
        NvmeGenericPath(status.st_rdev).empty()) {
        return nullptr;
    }
    const TargetInfo info = InspectTarget(target);
    if (!info.nvme || !info.nvme->fdp) {
        return nullptr;
    }
    obstacle = IoUringCmdObstacle();
    if (!obstacle.empty()) {
        return nullptr;
    }
    try {
        return OpenIoUringCmdDevice(GenericDeviceOf(target, "io_uring_cmd"), options,
                                    "auto: the namespace has flexible data placement, which needs NVMe "
                                    "commands");
    } catch (const Error &error) {
        obstacle = error.what();
        return nullptr;
    }
}

std::unique_ptr<Device> OpenXnvme(const Target &target, const DeviceOptions &options) {
    const std::string &engine = options.engine;
    if (XnvmeDrivesController(engine)) {
        throw Error(
            ErrorCode::UNSUPPORTED,
            target.name + ": engine '" + engine +
                "' drives a controller that the kernel has handed out, and this is a target of the "
                "kernel; hand it over (rawduck vfio bind) and name the PCI function and the namespace, "
                "as in vfio:0000:01:00.0n1 (`rawduck vfio list` prints those of this machine)");
    }
    if (!XnvmeSendsNvmeCommands(engine, target)) {
        RequireBlockDevice(target, engine);
        return OpenXnvmeDevice(target, options);
    }
    RequireNamespace(target, engine);
    return OpenXnvmeDevice(XnvmeWantsGenericDevice(engine) ? GenericDeviceOf(target, engine) : target,
                           options);
}

std::unique_ptr<Device> OpenFileOrBlock(const Target &target, const DeviceOptions &options) {
    const std::string &engine = options.engine;
    std::string no_placement;
    if (engine == "auto" && options.placement) {
        if (std::unique_ptr<Device> device = TryPlacement(target, options, no_placement)) {
            return device;
        }
    }
    const std::string but = no_placement.empty() ? "" : "; no placement: " + no_placement;
    if (engine == "posix") {
        return OpenPosixDevice(target, options, "asked for");
    }
    const std::string obstacle = IoUringObstacle();
    if (obstacle.empty()) {
        return OpenIoUringDevice(target, options,
                                 engine == "auto" ? "auto: the kernel offers it" + but : "asked for");
    }
    if (engine == "io_uring") {
        throw Error(ErrorCode::UNSUPPORTED, target.name + ": engine 'io_uring' is not available: " +
                                                obstacle + ", or use engine 'posix'");
    }
    return OpenPosixDevice(target, options, "auto: no io_uring: " + obstacle + but);
}

} // namespace

const std::vector<std::string> &EngineNames() {
    static const auto &names =
        *new const std::vector<std::string>{"io_uring_cmd", "nvme_ioctl", "io_uring", "posix"};
    return names;
}

void RequireKnownEngine(const std::string &engine, const std::string &subject) {
    if (IsXnvmeEngine(engine)) {
        RequireXnvmeInterface(engine, subject);
        return;
    }
    const auto &names = EngineNames();
    if (engine == "auto" || std::find(names.begin(), names.end(), engine) != names.end()) {
        return;
    }
    std::string known = "auto";
    for (const auto &name : names) {
        known += ", " + name;
    }
    throw Error(ErrorCode::INVALID, subject + ": engine '" + engine +
                                        "' is unknown; known engines: " + known +
                                        ", xnvme:<interface> (targets memory:, simulated: and vfio: have "
                                        "their own; xnvme:spdk is for vfio:)");
}

std::unique_ptr<StripedDevice> OpenStripe(const Target &target, const DeviceOptions &options,
                                          StripedDevice::Headers headers) {
    std::vector<std::unique_ptr<Device>> devices;
    for (const StripeMember &member : target.stripe->members) {
        devices.push_back(OpenDevice(member.target, options));
    }
    return std::make_unique<StripedDevice>(target.name, *target.stripe, std::move(devices), headers);
}

namespace {

std::unique_ptr<Device> OpenOne(const Target &target, const DeviceOptions &options) {
    const std::string &engine = options.engine;
    const bool own_engine = (target.kind == TargetKind::MEMORY && engine == "memory") ||
                            (target.kind == TargetKind::VFIO_FUNCTION && engine == "vfio") ||
                            (target.kind == TargetKind::SIMULATED && engine == "simulated");
    if (!own_engine) {
        RequireKnownEngine(engine, target.name);
    }
    if (target.kind == TargetKind::MEMORY) {
        return OpenMemoryDevice(target, options);
    }
    if (target.kind == TargetKind::VFIO_FUNCTION) {
        return XnvmeDrivesController(engine) ? OpenXnvmeDevice(target, options)
                                             : OpenVfioDevice(target, options);
    }
    if (target.kind == TargetKind::SIMULATED) {
        return OpenSimulatedDevice(FindSimulatedTarget(target.path), target, options);
    }
    if (IsXnvmeEngine(engine)) {
        return OpenXnvme(target, options);
    }
    if (IsPassthrough(engine) || (engine == "auto" && target.kind == TargetKind::NVME_CHARACTER_DEVICE)) {
        return OpenPassthrough(target, options);
    }
    RequireBlockDevice(target, engine);
    return OpenFileOrBlock(target, options);
}

} // namespace

std::unique_ptr<Device> OpenDevice(const Target &target, const DeviceOptions &options) {
    if (target.stripe) {
        return OpenStripe(target, options, StripedDevice::Headers::REQUIRE);
    }
    std::unique_ptr<Device> device = OpenOne(target, options);
    if (target.headers_unread && ReadHeaders(*device).Newest()) {
        throw MemberFound(target.name +
                          ": it belongs to a volume on several drives, which were not looked for");
    }
    return device;
}

} // namespace rawduck
