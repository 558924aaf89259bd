#include "gpu/device/emulated.hpp"

#include "common/invariant.hpp"
#include "gpu/kernels/host_kernels.hpp"

#include <cstring>
#include <thread>
#include <vector>

namespace rawduck::gpu {
namespace {

//! Thread blocks in threads.
class RunningBlocks final : public Event {
  public:
    ~RunningBlocks() override { Wait(); }
    void *HandleAddress() override { return nullptr; }

    void Start(const RingArguments &arguments, uint64_t blocks) {
        const HostKernel *kernel = FindHostKernel(ASK_KERNEL);
        while (threads_.size() < blocks) {
            const auto block = static_cast<u32>(threads_.size());
            threads_.emplace_back([kernel, arguments, block] { kernel->run(&arguments, block); });
        }
    }

    void Wait() override {
        for (std::thread &thread : threads_) {
            thread.join();
        }
        threads_.clear();
    }

  private:
    std::vector<std::thread> threads_;
};

//! Everything is complete when its call returns.
class PastEvent final : public Event {
  public:
    void *HandleAddress() override { return nullptr; }
    void Wait() override {}
};

//! This device reads all memory of the process.
class EmulatedPinner final : public MemoryPinner {
  public:
    const void *Group() const override { return this; }
    std::shared_ptr<void> Pin(void *, uint64_t) override { return std::make_shared<char>(); }
};

} // namespace

MemoryPinner &EmulatedDevice::Pinner() {
    static auto &pinner = *new EmulatedPinner;
    return pinner;
}

std::shared_ptr<Event> EmulatedDevice::CopiesSoFar() {
    return std::make_shared<PastEvent>();
}

void EmulatedDevice::CopyIn(uint8_t *device_to, const void *from, uint64_t bytes) {
    if (bytes > 0) {
        std::memcpy(device_to, from, bytes);
    }
}

void EmulatedDevice::CopyOut(void *to, const uint8_t *device_from, uint64_t bytes) {
    if (bytes > 0) {
        std::memcpy(to, device_from, bytes);
    }
}

std::unique_ptr<Answer> EmulatedDevice::AskFor(const uint8_t *device_from, uint64_t bytes) {
    return std::make_unique<ReadyAnswer>(std::vector<uint8_t>(device_from, device_from + bytes));
}

void EmulatedDevice::Fill(uint8_t *device_to, uint8_t byte, uint64_t bytes) {
    std::memset(device_to, byte, bytes);
}

std::shared_ptr<Event> EmulatedDevice::AskForReads(const RingArguments &arguments, uint64_t blocks) {
    auto running = std::make_shared<RunningBlocks>();
    running->Start(arguments, blocks);
    return running;
}

void EmulatedDevice::Launch(const char *kernel, uint64_t blocks, const void *arguments, uint64_t bytes,
                            Beside) {
    const HostKernel *found = FindHostKernel(kernel);
    RAWDUCK_INVARIANT(found && found->argument_bytes == bytes, "a kernel gets the arguments that it takes");
    for (uint64_t block = 0; block < blocks; block++) {
        found->run(arguments, static_cast<u32>(block));
    }
}

} // namespace rawduck::gpu
