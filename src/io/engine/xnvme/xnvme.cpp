#include "io/engine/xnvme/xnvme.hpp"

#include "common/error.hpp"
#include "common/process/fork_generation.hpp"
#include "io/device/file_device.hpp"
#include "io/device/nvme_device.hpp"
#include "io/device/synchronous_queue.hpp"
#include "io/engine/io_uring_cmd.hpp"
#include "io/engine/xnvme/xnvme_controller.hpp"
#include "io/engine/xnvme/xnvme_library.hpp"
#include "io/engine/xnvme/xnvme_queue.hpp"

#include <atomic>
#include <cerrno>
#include <string_view>

namespace rawduck {
namespace {

constexpr std::string_view PREFIX = "xnvme:";

struct Interface {
    const char *name;
    const char *async;  //!< xNVMe's asynchronous interface; nullptr: it has a synchronous one only
    bool bytes;         //!< for files and block devices
    bool nvme_commands; //!< for NVMe namespaces
    bool controller;    //!< for those of controllers that the kernel has handed out
};
constexpr Interface INTERFACES[] = {
    {"io_uring_cmd", "io_uring_cmd", false, true, false},
    {"io_uring", "io_uring", true, false, false},
    {"libaio", "libaio", true, false, false},
    {"posix", "posix", true, false, false},
    {"thrpool", "thrpool", true, true, false},
    {"emu", "emu", true, true, false},
    {"nvme", nullptr, false, true, false},
    {"psync", nullptr, true, false, false},
    {"spdk", nullptr, false, true, true},
};

//! What xNVMe has and a volume cannot lie on.
struct Unusable {
    const char *name, *reason;
};
constexpr const char *UNTESTED =
    "drives controllers that the kernel has handed out, and has not been tested enough "
    "here to hold data; xnvme:spdk and engine vfio do the same";
constexpr Unusable UNUSABLE[] = {
    {"nil", "completes commands without carrying them out"},
    {"ramdisk",
     "forgets everything whenever it is closed; memory:<name> keeps it as long as the process lives"},
    {"vfio", UNTESTED},
    {"libvfn", UNTESTED},
    {"upcie", UNTESTED},
};

std::string InterfaceName(const std::string &engine) {
    return engine.compare(0, PREFIX.size(), PREFIX) == 0 ? engine.substr(PREFIX.size()) : "";
}

const Interface *FindInterface(const std::string &engine) {
    for (const Interface &known : INTERFACES) {
        if (InterfaceName(engine) == known.name) {
            return &known;
        }
    }
    return nullptr;
}

std::string KnownInterfaces() {
    std::string known;
    for (const std::string &name : XnvmeInterfaceNames()) {
        known += (known.empty() ? "" : ", ") + std::string(PREFIX) + name;
    }
    return known;
}

//! Opens what `fd` has open once more, through libxnvme, whatever its path leads to by now.
std::unique_ptr<XnvmeConnection> Connect(const std::string &target_name, const std::string &engine, int fd,
                                         const char *sync, bool read_only, bool byte_offsets) {
    const XnvmeModule *module = &RequireXnvmeModule(target_name, engine);
    const XnvmeOpenOptions options = {fd, FindInterface(engine)->async, sync, read_only, byte_offsets};
    auto connection = std::make_unique<XnvmeConnection>(*module, options);
    if (!connection->device) {
        const bool missing = connection->error == -ENOTSUP;
        throw Error(missing ? ErrorCode::UNSUPPORTED : ErrorCode::IO,
                    target_name + ": engine '" + engine + "' cannot open it: the installed " +
                        module->library +
                        (missing ? std::string(" has no such interface for this kind of target")
                                 : " says " + ErrnoText(-connection->error)) +
                        "; use another interface, or another engine");
    }
    return connection;
}

std::unique_ptr<Queue> MakeSynchronousQueue(const XnvmeConnection &connection) {
    return std::make_unique<SynchronousQueue>(1, [&connection](Command &command) {
        connection.Run(command);
        return command.result;
    });
}

std::unique_ptr<Queue> MakeQueue(const XnvmeConnection &connection, const std::string &target_name,
                                 const std::string &engine, uint32_t depth) {
    if (FindInterface(engine)->async) {
        return std::make_unique<XnvmeQueue>(connection, target_name, depth);
    }
    return MakeSynchronousQueue(connection);
}

//! The C library carries out POSIX AIO in threads that it makes once per process and does not miss in a
//! child: what is submitted there would never complete.
void RefusePosixAfterFork(const std::string &target_name, const std::string &engine) {
    static const uint64_t first_use = ForkGeneration();
    if (first_use != ForkGeneration()) {
        throw Error(
            ErrorCode::UNSUPPORTED,
            target_name + ": engine '" + engine +
                "' was used before fork(), and the threads of POSIX AIO stayed with the parent process; use "
                "another interface in the child, such as xnvme:io_uring");
    }
}

uint32_t MaxDepth(const std::string &engine) {
    return FindInterface(engine)->async ? XNVME_MAX_CAPACITY : 1;
}

std::string Reason(const XnvmeConnection &connection) {
    return std::string("asked for; ") + connection.module.library;
}

class XnvmeFileDevice final : public FileDevice {
  public:
    XnvmeFileDevice(const Target &target, const DeviceOptions &options) : FileDevice(target, options) {
        const char *sync = target.kind == TargetKind::BLOCK_DEVICE ? "block" : "psync";
        connection_ = Connect(name_, options.engine, fd_.Get(), sync, caps_.read_only, true);
        caps_.engine = options.engine;
        caps_.engine_reason = Reason(*connection_);
        caps_.max_queue_depth = MaxDepth(options.engine);
        caps_.scarce_queues = FindInterface(options.engine)->async != nullptr;
        caps_.fua = false; // xNVMe's reads and writes of files and block devices have no flags
    }

    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse) override {
        return MakeQueue(*connection_, name_, caps_.engine, depth);
    }
    std::unique_ptr<Queue> CreateSynchronousQueue() override { return MakeSynchronousQueue(*connection_); }

  private:
    //! On the calling thread: asynchronously most of xNVMe's interfaces refuse it.
    int SyncData() override {
        nvme_passthru_cmd64 flush = {};
        flush.opcode = NVME_FLUSH;
        int64_t bytes = 0;
        return -connection_->module.run(connection_->device, &flush, &bytes);
    }

    std::unique_ptr<XnvmeConnection> connection_;
};

class XnvmeNamespaceDevice final : public NvmeDevice {
  public:
    XnvmeNamespaceDevice(const Target &target, const DeviceOptions &options) : NvmeDevice(target, options) {
        connection_ = Connect(name_, options.engine, fd_.Get(), "nvme", caps_.read_only, false);
        connection_->namespace_id = namespace_id_;
        connection_->lba_size = caps_.lba_size;
        caps_.engine = options.engine;
        caps_.engine_reason = Reason(*connection_);
        caps_.max_queue_depth = MaxDepth(options.engine);
        caps_.scarce_queues = FindInterface(options.engine)->async != nullptr;
    }

    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse) override {
        return MakeQueue(*connection_, name_, caps_.engine, depth);
    }
    std::unique_ptr<Queue> CreateSynchronousQueue() override { return MakeSynchronousQueue(*connection_); }

  private:
    int Run(nvme_passthru_cmd64 command) const override {
        int64_t bytes = 0;
        return connection_->module.run(connection_->device, &command, &bytes);
    }

    std::unique_ptr<XnvmeConnection> connection_;
};

} // namespace

bool IsXnvmeEngine(const std::string &engine) {
    return engine == "xnvme" || engine.compare(0, PREFIX.size(), PREFIX) == 0;
}

const std::vector<std::string> &XnvmeInterfaceNames() {
    static const auto &names = *[] {
        auto *all = new std::vector<std::string>;
        for (const Interface &known : INTERFACES) {
            all->emplace_back(known.name);
        }
        return all;
    }();
    return names;
}

void RequireXnvmeInterface(const std::string &engine, const std::string &subject) {
    if (FindInterface(engine)) {
        return;
    }
    const std::string name = InterfaceName(engine);
    for (const Unusable &known : UNUSABLE) {
        if (name == known.name) {
            throw Error(ErrorCode::UNSUPPORTED, subject + ": engine '" + engine +
                                                    "' cannot be used: xNVMe's " + name + " " + known.reason +
                                                    ". Use one of " + KnownInterfaces());
        }
    }
    throw Error(ErrorCode::INVALID, subject + ": engine '" + engine +
                                        "' names no interface of xNVMe; use one of " + KnownInterfaces());
}

std::string XnvmeObstacle() {
    std::string obstacle;
    LoadXnvmeModule(XnvmeModulePath(), obstacle);
    return obstacle;
}

bool XnvmeSendsNvmeCommands(const std::string &engine, const Target &target) {
    const Interface *known = FindInterface(engine);
    return known->nvme_commands && (!known->bytes || target.kind == TargetKind::NVME_CHARACTER_DEVICE);
}

bool XnvmeDrivesController(const std::string &engine) {
    const Interface *known = FindInterface(engine);
    return known && known->controller;
}

bool XnvmeWantsGenericDevice(const std::string &engine) {
    return InterfaceName(engine) == "io_uring_cmd";
}

std::unique_ptr<Device> OpenXnvmeDevice(const Target &target, const DeviceOptions &options) {
    if (XnvmeDrivesController(options.engine)) {
        return OpenXnvmeController(target, options, InterfaceName(options.engine));
    }
    if (InterfaceName(options.engine) == "posix") {
        RefusePosixAfterFork(target.name, options.engine);
    }
    if (!XnvmeSendsNvmeCommands(options.engine, target)) {
        return std::make_unique<XnvmeFileDevice>(target, options);
    }
    // libxnvme would write to standard error that the kernel cannot, when the first queue is made.
    const std::string obstacle = InterfaceName(options.engine) == "io_uring_cmd" ? IoUringCmdObstacle() : "";
    if (!obstacle.empty()) {
        throw Error(ErrorCode::UNSUPPORTED, target.name + ": engine '" + options.engine +
                                                "' is not available: " + obstacle + ", or use engine '" +
                                                std::string(PREFIX) + "nvme'");
    }
    return std::make_unique<XnvmeNamespaceDevice>(target, options);
}

} // namespace rawduck
