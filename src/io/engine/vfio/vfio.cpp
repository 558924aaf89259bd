#include "io/engine/vfio/vfio.hpp"

#include "common/memory/buffers/buffer_memory.hpp"
#include "common/process/fork_generation.hpp"
#include "io/device/nvme_device.hpp"
#include "io/engine/vfio/ask_controller.hpp"
#include "io/engine/vfio/dma/data_pointer.hpp"
#include "io/engine/vfio/vfio_function.hpp"
#include "io/engine/vfio/vfio_queue.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <map>
#include <thread>

namespace rawduck {
namespace {

//! More threads than processors never submit at the same moment, and some of them sleep.
constexpr uint32_t LANES_PER_PROCESSOR = 2, LANES_MAX = 64;

//! Of one PCI function in this process.
struct Place {
    std::mutex mutex; //!< guards the controller, and is held while that is opened or closed
    std::shared_ptr<Controller> controller;
    uint32_t users = 0; //!< of `controller`
};

struct Places {
    uint64_t fork_generation = ForkGeneration();
    SpareMemory spare;
    std::mutex mutex; //!< guards the map; no other lock is taken under it
    std::map<std::string, Place> by_address;
};

//! Those of a forked child are others: it has no controllers, whatever its parent had, and whoever held these
//! mutexes when it was made is not there.
Places &OwnPlaces() {
    static std::atomic<Places *> current{nullptr};
    Places *places = current.load();
    while (!places || places->fork_generation != ForkGeneration()) {
        auto *fresh = new Places; // used until the process ends
        if (current.compare_exchange_strong(places, fresh)) {
            return *fresh;
        }
        delete fresh;
    }
    return *places;
}

//! How long the kernel's driver waits for a command on this machine, in seconds: whoever has changed that, knows why.
constexpr const char *COMMAND_TIMEOUT_PATH = "/sys/module/nvme_core/parameters/io_timeout";
constexpr uint64_t COMMAND_TIMEOUT_MAX_S = 3600;

std::shared_ptr<Controller> OpenController(const std::string &address, const std::string &name) {
    ControllerOptions options;
    uint64_t timeout_s = 0;
    if (ReadNumber(COMMAND_TIMEOUT_PATH, timeout_s) && timeout_s > 0) {
        options.command_timeout_ms = std::min(timeout_s, COMMAND_TIMEOUT_MAX_S) * 1000;
    }
    options.lanes_max = std::clamp(LANES_PER_PROCESSOR * std::thread::hardware_concurrency(), 2u, LANES_MAX);
    auto controller =
        std::make_shared<Controller>(std::make_unique<VfioFunction>(address, name), options, name);
    // The device may have too few addresses for it: then everything is copied.
    if (BufferMemory *memory = BufferMemory::OfProcess()) {
        controller->Memory().OpenWindow(memory->Begin(), memory->AddressBytes(), OwnPlaces().spare,
                                        SpareBytesMax());
    }
    return controller;
}

//! A share in a controller, which is closed with the last of them.
class ControllerShare {
  public:
    explicit ControllerShare(const Target &target) : place_(PlaceOf(target.path)) {
        std::lock_guard<std::mutex> guard(place_.mutex);
        // One that died has given the function back, and those that still use it only end.
        if (!place_.controller || !place_.controller->Dead().empty()) {
            place_.controller = OpenController(target.path, target.name);
            place_.users = 0;
        }
        place_.users++;
        controller_ = place_.controller;
    }
    ~ControllerShare() {
        std::lock_guard<std::mutex> guard(place_.mutex);
        if (controller_ == place_.controller && --place_.users == 0) {
            place_.controller.reset();
        }
        controller_.reset();
    }
    ControllerShare(const ControllerShare &) = delete;
    ControllerShare &operator=(const ControllerShare &) = delete;

    Controller &Get() const { return *controller_; }

  private:
    static Place &PlaceOf(const std::string &address) {
        Places &places = OwnPlaces();
        std::lock_guard<std::mutex> guard(places.mutex);
        return places.by_address[address];
    }

    Place &place_;
    std::shared_ptr<Controller> controller_;
};

class VfioDevice final : public NvmeDevice {
  public:
    VfioDevice(const Target &target, const DeviceOptions &options)
        : NvmeDevice(target.name), share_(target), polls_(options.polling) {
        Describe(Ask(target), options);
        caps_.engine = "vfio";
        caps_.engine_reason = "the target names a PCI function";
        caps_.max_queue_depth = QUEUE_DEPTH_MAX;
        caps_.registered_memory = true;
        caps_.polling_obstacle = polls_ ? "" : "nvme_queues does not say polling=on";
    }

    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse) override {
        return std::make_unique<VfioQueue>(share_.Get(), namespace_id_, caps_.lba_size, depth, polls_);
    }
    std::unique_ptr<Queue> CreateSynchronousQueue() override { return CreateQueue(1, QueueUse::SHARED); }

    bool Register(void *memory, uint64_t bytes, MemoryNeed need) override {
        return (need == MemoryNeed::COPIES || SpareBytesMax() == UINT64_MAX) &&
               share_.Get().Memory().Register(memory, bytes) == 0;
    }
    void Forget(void *memory) override { share_.Get().Memory().Unregister(memory); }

  private:
    static constexpr uint32_t QUEUE_DEPTH_MAX = 4096;

    int Run(nvme_passthru_cmd64 command) const override {
        return share_.Get().Run(NvmeQueueKind::IO, command);
    }
    TargetInfo Ask(const Target &target) const;

    const ControllerShare share_;
    const bool polls_;
};

TargetInfo VfioDevice::Ask(const Target &target) const {
    Controller &controller = share_.Get();
    const NvmeRun run = [&](NvmeQueueKind kind, nvme_passthru_cmd64 &command) {
        return controller.Run(kind, command);
    };
    TargetInfo info = AskController(run, target);
    info.memory_alignment = DATA_ALIGNMENT;
    info.max_passthrough_bytes = controller.MaxTransferBytes();
    return info;
}

} // namespace

std::unique_ptr<Device> OpenVfioDevice(const Target &target, const DeviceOptions &options) {
    return std::make_unique<VfioDevice>(target, options);
}

} // namespace rawduck
