#include "io/engine/xnvme/xnvme_controller.hpp"

#include "common/error.hpp"
#include "common/process/fork_generation.hpp"
#include "io/device/nvme_device.hpp"
#include "io/device/synchronous_queue.hpp"
#include "io/engine/vfio/ask_controller.hpp"
#include "io/engine/vfio/vfio_access.hpp"
#include "io/engine/xnvme/inherited_functions.hpp"
#include "io/engine/xnvme/xnvme_library.hpp"
#include "io/engine/xnvme/xnvme_queue.hpp"
#include "target/system/file_descriptor.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <mutex>

namespace rawduck {
namespace {

constexpr uint32_t COMMAND_TIMEOUT_MS = 30000; // as the kernel's driver
//! Of a device, for data on its way.
constexpr uint64_t BUFFER_BYTES = 64 * MIB;
//! That, and as much for queues.
constexpr uint64_t HUGE_BYTES_MIN = 2 * BUFFER_BYTES;
//! Its lists of pages describe 2 MiB.
constexpr uint64_t TRANSFER_MAX = 1 * MIB;

//! Controllers that this process drives through libxnvme.
struct Uses {
    std::mutex mutex; //!< held while one is opened or closed
    std::map<std::string, uint32_t> by_address;
    bool has_memory = false; //!< a backend has had its first, some of which it keeps
    InheritedFunctions inherited;
};

Uses &AllUses() {
    static auto &uses = *new Uses;
    return uses;
}

std::string EngineName(const std::string &backend) {
    return "xnvme:" + backend;
}

void RequireBackend(const XnvmeModule &module, const std::string &target_name, const std::string &backend) {
    if (!module.has_backend(backend.c_str())) {
        throw Error(
            ErrorCode::UNSUPPORTED,
            target_name + ": engine '" + EngineName(backend) + "' is not available: the installed " +
                module.library + " was built without " + backend +
                "; build it with SPDK (meson's option with-spdk), and rawduck again, or use engine 'vfio'");
    }
}

//! A child shares the memory that the controller transfers to, and with it the queues of its parent.
void RefuseAfterFork(const std::string &target_name, const std::string &backend) {
    static const uint64_t first_use = ForkGeneration();
    if (first_use != ForkGeneration()) {
        throw Error(ErrorCode::UNSUPPORTED,
                    target_name + ": engine '" + EngineName(backend) +
                        "' was used before fork(), and its driver belongs to the "
                        "parent process; start a program of its own (exec, or Python's "
                        "multiprocessing with 'spawn'), or use engine 'vfio'");
    }
}

uint64_t FreeHugeBytes() {
    constexpr const char *FOLDER = "/sys/kernel/mm/hugepages/";
    constexpr const char *PREFIX = "hugepages-"; // and "2048kB"
    uint64_t bytes = 0;
    for (const std::string &name : ListDirectory(FOLDER)) {
        uint64_t pages = 0;
        if (name.rfind(PREFIX, 0) == 0 && ReadNumber(FOLDER + name + "/free_hugepages", pages)) {
            bytes += pages * std::strtoull(name.c_str() + std::string(PREFIX).size(), nullptr, 10) * KIB;
        }
    }
    return bytes;
}

//! Empty when there is none.
std::string HugePageMount() {
    std::ifstream mounts("/proc/mounts");
    std::string device, place, type, rest;
    while (mounts >> device >> place >> type && std::getline(mounts, rest)) {
        if (type == "hugetlbfs") {
            return place;
        }
    }
    return "";
}

//! It takes them once for the process, and cannot be started a second time when it was short of them.
void RequireHugePages(const std::string &target_name, const std::string &backend) {
    const std::string subject = target_name + ": engine '" + EngineName(backend) + "' ";
    const uint64_t free_bytes = FreeHugeBytes();
    if (free_bytes < HUGE_BYTES_MIN) {
        throw Error(ErrorCode::UNSUPPORTED,
                    subject + "needs " + std::to_string(HUGE_BYTES_MIN / MIB) + " MiB of huge pages, and " +
                        std::to_string(free_bytes / MIB) +
                        " MiB are free; reserve more (echo 256 | sudo tee /proc/sys/vm/nr_hugepages), or use "
                        "engine 'vfio'");
    }
    const std::string place = HugePageMount();
    if (place.empty()) {
        throw Error(ErrorCode::UNSUPPORTED,
                    subject +
                        "needs a file system of huge pages, and none is mounted; do that (sudo mount -t "
                        "hugetlbfs none /dev/hugepages), or use engine 'vfio'");
    }
    if (access(place.c_str(), W_OK) != 0) {
        throw Error(ErrorCode::PERMISSION, subject + "may not write to the huge pages of " + place + ": " +
                                               ErrnoText(errno) +
                                               "; run as root, or give it to your user (sudo chown $USER " +
                                               place + "), or use engine 'vfio'");
    }
}

//! libxnvme says only that it has failed, so who has the controller is asked first.
void RequireFree(const Target &target) {
    const std::string path = "/dev/vfio/" + VfioGroup(target.path, target.name);
    const FileDescriptor group(OpenVfioGroup(path, target.path, target.name));
}

//! A share in a controller.
class ControllerUse {
  public:
    ControllerUse(const Target &target, const std::string &backend)
        : module_(RequireXnvmeModule(target.name, EngineName(backend))), address_(target.path) {
        RequireBackend(module_, target.name, backend);
        RefuseAfterFork(target.name, backend);
        Uses &uses = AllUses();
        std::lock_guard<std::mutex> guard(uses.mutex);
        if (uses.by_address.count(address_) == 0) {
            RequireFree(target);
        }
        if (!uses.has_memory) {
            RequireHugePages(target.name, backend);
        }
        const std::vector<int> before = InheritedFunctions::Descriptors();
        Open(target, backend);
        uses.has_memory = true;
        uses.inherited.Keep(before);
        uses.by_address[address_]++;
    }
    ~ControllerUse() {
        Uses &uses = AllUses();
        std::lock_guard<std::mutex> guard(uses.mutex);
        uses.inherited.Release();
        connection_.reset();
        uses.inherited.KeepTheRest();
        if (--uses.by_address[address_] == 0) {
            uses.by_address.erase(address_);
        }
    }
    ControllerUse(const ControllerUse &) = delete;
    ControllerUse &operator=(const ControllerUse &) = delete;

    XnvmeConnection &Get() const { return *connection_; }

  private:
    void Open(const Target &target, const std::string &backend) {
        const XnvmeControllerOptions options = {backend.c_str(), target.path.c_str(), target.namespace_id,
                                                COMMAND_TIMEOUT_MS, BUFFER_BYTES};
        connection_ = std::make_unique<XnvmeConnection>(module_, options);
        if (!connection_->device) {
            throw Error(ErrorCode::IO,
                        target.name + ": engine '" + EngineName(backend) + "' did not get namespace " +
                            std::to_string(target.namespace_id) + " of " + target.path + " from " +
                            module_.library + ": " + ErrnoText(-connection_->error) +
                            "; look whether there is one (engine 'vfio' says), whether you may lock memory "
                            "(ulimit -l), and into the kernel log (dmesg); then start this process anew");
        }
    }

    const XnvmeModule &module_;
    const std::string address_;
    std::unique_ptr<XnvmeConnection> connection_;
};

class XnvmeControllerDevice final : public NvmeDevice {
  public:
    XnvmeControllerDevice(const Target &target, const DeviceOptions &options, const std::string &backend)
        : NvmeDevice(target.name), use_(target, backend) {
        XnvmeConnection &connection = use_.Get();
        Describe(Ask(target), options);
        connection.lba_size = caps_.lba_size;
        if (connection.module.set_transfer_bytes(connection.device, caps_.max_transfer_bytes) != 0) {
            throw Error(ErrorCode::IO, name_ + ": engine '" + EngineName(backend) +
                                           "' has no memory left for a command of " +
                                           std::to_string(caps_.max_transfer_bytes) +
                                           " bytes; reserve more huge pages (/proc/sys/vm/nr_hugepages)");
        }
        caps_.engine = EngineName(backend);
        caps_.engine_reason = std::string("asked for; ") + connection.module.library;
        caps_.max_queue_depth = XNVME_MAX_CAPACITY;
        caps_.scarce_queues = true;
    }

    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse) override {
        return std::make_unique<XnvmeQueue>(use_.Get(), name_, depth);
    }
    std::unique_ptr<Queue> CreateSynchronousQueue() override {
        return std::make_unique<SynchronousQueue>(1, [this](Command &command) {
            use_.Get().Run(command);
            return command.result;
        });
    }

  private:
    int Run(nvme_passthru_cmd64 command) const override {
        int64_t bytes = 0;
        return use_.Get().module.run(use_.Get().device, &command, &bytes);
    }
    TargetInfo Ask(const Target &target) const;

    const ControllerUse use_;
};

TargetInfo XnvmeControllerDevice::Ask(const Target &target) const {
    const XnvmeConnection &connection = use_.Get();
    const NvmeRun run = [&](NvmeQueueKind kind, nvme_passthru_cmd64 &command) {
        return kind == NvmeQueueKind::ADMIN ? connection.module.run_admin(connection.device, &command)
                                            : Run(command);
    };
    TargetInfo info = AskController(run, target);
    info.memory_alignment = 1; // all data is copied
    const uint64_t limit = info.nvme->max_transfer_bytes;
    info.max_passthrough_bytes = limit == 0 ? TRANSFER_MAX : std::min(limit, TRANSFER_MAX);
    return info;
}

} // namespace

std::unique_ptr<Device> OpenXnvmeController(const Target &target, const DeviceOptions &options,
                                            const std::string &backend) {
    return std::make_unique<XnvmeControllerDevice>(target, options, backend);
}

} // namespace rawduck
