//! A volume on a simulated device that tells a test of each command before it is carried out.
#pragma once

#include "io/device/simulated/simulated_device.hpp"
#include "support/out_of_memory.hpp"
#include "support/volume_fixture.hpp"

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

namespace rawduck {

//! Called on the thread that submits: the test's, or one of the volume's own.
class CommandHook {
  public:
    using Function = std::function<void(const Command &)>;

    //! Null for nothing. Calls that have begun go on.
    void Set(Function function) {
        auto next = function ? std::make_shared<const Function>(std::move(function)) : nullptr;
        std::lock_guard<std::mutex> guard(mutex_);
        function_.swap(next);
    }
    void Call(const Command &command) const {
        std::unique_lock<std::mutex> guard(mutex_);
        const std::shared_ptr<const Function> function = function_;
        guard.unlock();
        if (function) {
            (*function)(command);
        }
    }

  private:
    mutable std::mutex mutex_; //!< guards what follows
    std::shared_ptr<const Function> function_;
};

class HookedQueue final : public Queue {
  public:
    HookedQueue(std::unique_ptr<Queue> inner, const std::shared_ptr<CommandHook> &hook)
        : inner_(std::move(inner)), hook_(hook) {}
    bool Submit(Command &command) override {
        const MemoryAgain again;
        hook_->Call(command);
        return inner_->Submit(command);
    }
    uint32_t Reap(Command **completed, uint32_t max, bool wait) override {
        const MemoryAgain again;
        return inner_->Reap(completed, max, wait);
    }
    uint32_t Depth() const override { return inner_->Depth(); }

  private:
    std::unique_ptr<Queue> inner_;
    std::shared_ptr<CommandHook> hook_;
};

class HookedDevice final : public Device {
  public:
    HookedDevice(std::unique_ptr<Device> inner, std::shared_ptr<CommandHook> hook)
        : inner_(std::move(inner)), hook_(std::move(hook)) {}
    const Capabilities &Caps() const override { return inner_->Caps(); }
    uint64_t CurrentCapacity() const override { return inner_->CurrentCapacity(); }
    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse use) override {
        return std::make_unique<HookedQueue>(inner_->CreateQueue(depth, use), hook_);
    }
    void Flush() override {
        const MemoryAgain again;
        inner_->Flush();
    }
    bool Deallocate(uint64_t device_offset, uint64_t length) override {
        const MemoryAgain again;
        return inner_->Deallocate(device_offset, length);
    }

  private:
    std::unique_ptr<Device> inner_;
    std::shared_ptr<CommandHook> hook_;
};

//! Becomes larger while it is open: it has what it wraps, and tells of a part.
class GrowingDevice final : public Device {
  public:
    GrowingDevice(std::unique_ptr<Device> inner, std::shared_ptr<const std::atomic<uint64_t>> capacity)
        : inner_(std::move(inner)), capacity_(std::move(capacity)), caps_(inner_->Caps()) {
        caps_.capacity_bytes = *capacity_;
    }
    const Capabilities &Caps() const override { return caps_; }
    uint64_t CurrentCapacity() const override { return *capacity_; }
    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse use) override {
        return inner_->CreateQueue(depth, use);
    }
    void Flush() override { inner_->Flush(); }
    bool Deallocate(uint64_t device_offset, uint64_t length) override {
        return inner_->Deallocate(device_offset, length);
    }

  private:
    const std::unique_ptr<Device> inner_;
    const std::shared_ptr<const std::atomic<uint64_t>> capacity_;
    Capabilities caps_;
};

//! Formatted; what it held at a power cut after everything so far is a mount of its own.
class SimulatedVolume {
  public:
    explicit SimulatedVolume(uint32_t lba_size, uint64_t capacity = 16 * MIB) {
        SimulatedOptions options;
        options.capacity_bytes = capacity;
        options.lba_size = options.atomic_write_bytes = lba_size;
        medium = std::make_shared<SimulatedMedium>(options);
        BlockIo io(OpenSimulatedDevice(medium, target, {}), BlockIoOptions(), target.name,
                   std::make_shared<IoStats>());
        Volume::FormatDevice(io, FormatOptions(), lba_size);
    }

    std::shared_ptr<Volume> Mount() const { return MountMedium(medium); }
    //! After the last pin on the volume is gone.
    std::shared_ptr<Volume> MountAgain(std::shared_ptr<Volume> volume) const {
        volume.reset();
        return Mount();
    }
    //! As a mount finds it when the power goes now.
    std::shared_ptr<Volume> MountAfterCut(uint64_t seed = 1) const {
        PowerCutReport report;
        return MountMedium(medium->PowerCut(medium->Events(), seed, report));
    }

    std::shared_ptr<Volume> MountMedium(const std::shared_ptr<SimulatedMedium> &which) const {
        auto device = std::make_unique<HookedDevice>(OpenSimulatedDevice(which, target, {}), hook);
        return Volume::MountDevice(target, std::move(device), MountOptions(), std::make_shared<IoStats>());
    }

    const Target target = ResolveTarget("simulated:hooked");
    std::shared_ptr<SimulatedMedium> medium;
    std::shared_ptr<CommandHook> hook = std::make_shared<CommandHook>();
};

} // namespace rawduck
