//! A device without a GPU: memory of this process, the same kernels as loops in the calling thread.
#pragma once

#include "gpu/device/host_buffer.hpp"
#include "gpu/device/kernel_device.hpp"

namespace rawduck::gpu {

class EmulatedDevice final : public KernelDevice {
  public:
    const char *Name() const override { return "emulated"; }
    int32_t TypeNumber() const override { return 1; }
    int32_t Ordinal() const override { return 0; }
    uint64_t Multiprocessors() const override { return 0; }
    uint64_t PinnedBytes() const override { return 0; }

    Memory Allocate(uint64_t bytes, Purpose = Purpose::WORK) override { return OrdinaryMemory(bytes); }
    Memory TakeSlot() override { return Allocate(SLOT_BYTES); }
    void CopyInSlot(uint8_t *device_to, const uint8_t *slot_from, uint64_t bytes) override {
        CopyIn(device_to, slot_from, bytes);
    }
    MemoryPinner &Pinner() override;
    Memory TryTakeChunk() override { return Allocate(CHUNK_BYTES); }
    void CopyInPinned(const std::vector<CopiedPiece> &pieces) override { Pull(pieces, Beside::NONE); }
    std::unique_ptr<Answer> AskFor(const uint8_t *device_from, uint64_t bytes) override;
    std::shared_ptr<Event> CopiesSoFar() override;
    void WaitFor(Event &) override {}
    void CopyIn(uint8_t *device_to, const void *from, uint64_t bytes) override;
    void CopyOut(void *to, const uint8_t *device_from, uint64_t bytes) override;
    void Copy(uint8_t *device_to, const uint8_t *device_from, uint64_t bytes) override {
        CopyIn(device_to, device_from, bytes);
    }
    void Fill(uint8_t *device_to, uint8_t byte, uint64_t bytes) override;
    std::shared_ptr<Event> Ready() override { return CopiesSoFar(); }
    void MakeWait(uint64_t, Event &) override {}
    void WaitForAllNoted() noexcept override {}
    void LetGoWhenIdle(std::shared_ptr<void>) noexcept override {}
    std::shared_ptr<void> KeepFreedMemory() override { return nullptr; }
    //! Each block in a thread of its own, so that they meet each other and the server as on a GPU.
    std::shared_ptr<Event> AskForReads(const RingArguments &arguments, uint64_t blocks) override;

  protected:
    void Launch(const char *kernel, uint64_t blocks, const void *arguments, uint64_t bytes,
                Beside beside) override;
};

} // namespace rawduck::gpu
