//! A GPU as a device for one scan or query, with streams of its own.
//!
//!     copying     CopyInSlot and CopyInPinned; beside everything else, and before it where both wait for processors
//!     working     all other calls, in their order
//!     returning   COPIED memory is freed in one such stream, SHARED memory in another: behind what still uses it, and
//!                 without anything waiting for that
//!
//! SHARED memory is freed behind what the default stream was told to do before, too, and with it all streams that CUDA
//! calls blocking. Who uses a batch in another stream says so (Batch::is_used_elsewhere).
#pragma once

#include "gpu/device/cuda/gpu.hpp"
#include "gpu/device/kernel_device.hpp"

namespace rawduck::gpu::cuda {

class Streams;

class CudaDevice final : public KernelDevice {
  public:
    explicit CudaDevice(std::shared_ptr<Gpu> gpu);

    const char *Name() const override { return gpu_->Name().c_str(); }
    int32_t TypeNumber() const override { return 2; }
    int32_t Ordinal() const override { return gpu_->Ordinal(); }
    uint64_t Multiprocessors() const override { return gpu_->Multiprocessors(); }
    uint64_t PinnedBytes() const override { return gpu_->PinnedBytes(); }

    Memory Allocate(uint64_t bytes, Purpose purpose = Purpose::WORK) override;
    Memory TakeSlot() override { return gpu_->TakeSlot(); }
    void CopyInSlot(uint8_t *device_to, const uint8_t *slot_from, uint64_t bytes) override;
    MemoryPinner &Pinner() override { return *gpu_; }
    Memory TryTakeChunk() override { return gpu_->TryTakeChunk(); }
    void CopyInPinned(const std::vector<CopiedPiece> &pieces) override;
    std::unique_ptr<Answer> AskFor(const uint8_t *device_from, uint64_t bytes) override;
    std::shared_ptr<Event> CopiesSoFar() override;
    void WaitFor(Event &copies) override;
    void CopyIn(uint8_t *device_to, const void *from, uint64_t bytes) override;
    void CopyOut(void *to, const uint8_t *device_from, uint64_t bytes) override;
    void Copy(uint8_t *device_to, const uint8_t *device_from, uint64_t bytes) override;
    void Fill(uint8_t *device_to, uint8_t byte, uint64_t bytes) override;
    std::shared_ptr<Event> Ready() override;
    void MakeWait(uint64_t stream, Event &ready) override;
    void WaitForAllNoted() noexcept override { gpu_->WaitForAllNoted(); }
    void LetGoWhenIdle(std::shared_ptr<void> kept) noexcept override;
    std::shared_ptr<void> KeepFreedMemory() override { return gpu_->KeepFreedMemory(); }
    std::shared_ptr<Event> AskForReads(const RingArguments &arguments, uint64_t blocks) override;

  protected:
    void Launch(const char *kernel, uint64_t blocks, const void *arguments, uint64_t bytes,
                Beside beside) override;

  private:
    Result TryAllocate(DevicePointer &pointer, uint64_t bytes, Stream stream);
    std::shared_ptr<Event> Record(Stream stream, unsigned flags);

    std::shared_ptr<Gpu> gpu_;
    std::shared_ptr<Streams> streams_;
};

} // namespace rawduck::gpu::cuda
