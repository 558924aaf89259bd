#include "io/device/simulated/simulated_device.hpp"

#include "common/error.hpp"
#include "io/device/command_size.hpp"
#include "io/device/in_process_targets.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

namespace rawduck {
namespace {

constexpr uint32_t MAX_QUEUE_DEPTH = 32;
constexpr uint32_t MEMORY_ALIGNMENT = 4; // of NVMe
constexpr uint32_t MAX_TRANSFER_BYTES = 128 * KIB;

//! Carries commands out when they are submitted, and reports them in any order, a few at a time. A write is
//! complete, for a flush, only when it has been reported.
class SimulatedQueue final : public Queue {
  public:
    SimulatedQueue(std::shared_ptr<SimulatedMedium> medium, const Capabilities &caps, uint32_t depth)
        : medium_(std::move(medium)), caps_(caps), depth_(depth), random_(medium_->Options().seed) {}

    bool Submit(Command &command) override {
        if (in_flight_.size() >= depth_) {
            return false;
        }
        InFlight entry{&command, std::nullopt};
        command.result = Transfer(command, entry.event);
        in_flight_.push_back(entry);
        return true;
    }

    uint32_t Reap(Command **completed, uint32_t max, bool wait) override {
        if (wait) {
            std::this_thread::sleep_for(std::chrono::microseconds(medium_->Options().latency_us));
        }
        const uint64_t most = std::min<uint64_t>(max, in_flight_.size());
        const uint64_t count = wait ? 1 + random_() % most : random_() % (most + 1);
        for (uint64_t i = 0; i < count; i++) {
            std::swap(in_flight_[random_() % in_flight_.size()], in_flight_.back());
            const InFlight entry = in_flight_.back();
            in_flight_.pop_back();
            if (entry.event) {
                medium_->Complete(*entry.event);
            }
            completed[i] = entry.command;
        }
        return static_cast<uint32_t>(count);
    }

    uint32_t Depth() const override { return depth_; }

  private:
    struct InFlight {
        Command *command;
        std::optional<uint64_t> event; //!< of a write that was recorded
    };

    int64_t Transfer(const Command &command, std::optional<uint64_t> &event) {
        const uint64_t capacity = medium_->CapacityBytes();
        const bool valid =
            command.length > 0 && command.length <= caps_.max_transfer_bytes &&
            IsAligned(command.length, caps_.lba_size) && IsAligned(command.device_offset, caps_.lba_size) &&
            IsAligned(reinterpret_cast<uintptr_t>(command.data), caps_.memory_alignment) &&
            command.device_offset <= capacity && command.length <= capacity - command.device_offset;
        if (!valid) {
            return -EINVAL;
        }
        auto *data = static_cast<char *>(command.data);
        if (command.opcode == Opcode::READ) {
            return medium_->Read(command.device_offset, data, command.length);
        }
        return caps_.read_only
                   ? -EBADF
                   : medium_->Write(command.device_offset, data, command.length, command.fua, event);
    }

    const std::shared_ptr<SimulatedMedium> medium_;
    const Capabilities &caps_;
    const uint32_t depth_;
    std::mt19937_64 random_;
    std::vector<InFlight> in_flight_;
};

class SimulatedDevice final : public Device {
  public:
    SimulatedDevice(std::shared_ptr<SimulatedMedium> medium, const Target &target,
                    const DeviceOptions &options)
        : medium_(std::move(medium)), target_name_(target.name) {
        const SimulatedOptions &simulated = medium_->Options();
        caps_.engine = "simulated";
        caps_.engine_reason = "the target is simulated";
        caps_.capacity_bytes = medium_->CapacityBytes();
        caps_.lba_size = simulated.lba_size;
        caps_.memory_alignment = MEMORY_ALIGNMENT;
        caps_.max_transfer_bytes =
            std::min(MAX_TRANSFER_BYTES,
                     CommandSizeLimit(target.name, options, MAX_TRANSFER_BYTES, simulated.lba_size));
        caps_.max_queue_depth = MAX_QUEUE_DEPTH;
        caps_.volatile_write_cache = simulated.volatile_write_cache;
        caps_.fua = simulated.fua != SimulatedFua::NONE;
        caps_.deallocate = !options.read_only;
        caps_.read_only = options.read_only;
    }

    const Capabilities &Caps() const override { return caps_; }
    uint64_t CurrentCapacity() const override { return medium_->CapacityBytes(); }

    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse) override {
        return std::make_unique<SimulatedQueue>(medium_, caps_, std::clamp(depth, 1u, MAX_QUEUE_DEPTH));
    }

    void Flush() override {
        const int64_t result = medium_->Flush();
        if (result != 0) {
            throw Error(ErrorCode::IO,
                        target_name_ + ": flush failed: " + ErrnoText(static_cast<int>(-result)));
        }
    }

    bool Deallocate(uint64_t device_offset, uint64_t length) override {
        if (caps_.deallocate) {
            medium_->Deallocate(device_offset, length);
        }
        return caps_.deallocate;
    }

  private:
    const std::shared_ptr<SimulatedMedium> medium_;
    const std::string target_name_;
    Capabilities caps_;
};

using SimulatedTargets = InProcessTargets<SimulatedMedium>;

void CheckOptions(const std::string &name, const SimulatedOptions &options) {
    auto refuse = [&](const std::string &why) {
        throw Error(ErrorCode::INVALID, "simulated:" + name + ": cannot create it: " + why);
    };
    if (name.empty()) {
        refuse("a simulated target needs a name, such as simulated:disk");
    }
    if (options.lba_size != 512 && options.lba_size != 4096) {
        refuse("its LBA size must be 512 or 4096, not " + std::to_string(options.lba_size));
    }
    if (options.capacity_bytes < MAX_TRANSFER_BYTES || !IsAligned(options.capacity_bytes, options.lba_size)) {
        refuse("its capacity of " + std::to_string(options.capacity_bytes) +
               " bytes must be a multiple of the LBA size and at least " +
               std::to_string(MAX_TRANSFER_BYTES));
    }
    if (options.atomic_write_bytes % options.lba_size != 0) {
        refuse("its atomic write unit of " + std::to_string(options.atomic_write_bytes) +
               " bytes must be a multiple of the LBA size");
    }
}

} // namespace

void CreateSimulatedTarget(const std::string &name, SimulatedOptions options) {
    CheckOptions(name, options);
    if (options.atomic_write_bytes == 0) {
        options.atomic_write_bytes = options.lba_size;
    }
    PutSimulatedTarget(name, std::make_shared<SimulatedMedium>(options));
}

void PutSimulatedTarget(const std::string &name, std::shared_ptr<SimulatedMedium> medium) {
    if (!SimulatedTargets::Instance().TryReplace(name, std::move(medium))) {
        throw Error(ErrorCode::LOCKED,
                    "simulated:" + name + ": it is in use and cannot be replaced; detach everything on it");
    }
}

std::shared_ptr<SimulatedMedium> FindSimulatedTarget(const std::string &name) {
    std::shared_ptr<SimulatedMedium> medium = SimulatedTargets::Instance().Find(name);
    if (!medium) {
        throw Error(ErrorCode::NOT_FOUND, "simulated:" + name +
                                              ": there is no such simulated target in this process; "
                                              "nvme_simulate() makes one, in tests (CONTRIBUTING.md)");
    }
    return medium;
}

std::unique_ptr<Device> OpenSimulatedDevice(std::shared_ptr<SimulatedMedium> medium, const Target &target,
                                            const DeviceOptions &options) {
    return std::make_unique<SimulatedDevice>(std::move(medium), target, options);
}

} // namespace rawduck
