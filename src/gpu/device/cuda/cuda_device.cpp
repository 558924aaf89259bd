#include "gpu/device/cuda/cuda_device.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "gpu/decode/lanes.hpp"
#include "gpu/device/cuda/idle_release.hpp"
#include "gpu/device/cuda/streams.hpp"

#include <algorithm>
#include <limits>

namespace rawduck::gpu::cuda {
namespace {

constexpr uint64_t LEAST_BYTES = 64; // none at all is an error for the driver

class CudaEvent final : public Event {
  public:
    CudaEvent(std::shared_ptr<Gpu> gpu, EventHandle handle) : gpu_(std::move(gpu)), handle_(handle) {}

    ~CudaEvent() override {
        const Current current(*gpu_, std::nothrow);
        if (current.IsSet()) {
            gpu_->Note(gpu_->Calls().event_destroy(handle_), Driver::event_destroy_symbol);
        }
    }

    void *HandleAddress() override { return &handle_; }

    void Wait() override {
        const Current current(*gpu_);
        RAWDUCK_CUDA(gpu_->Calls(), event_synchronize, "waiting for " + gpu_->Name(), handle_);
    }

  private:
    std::shared_ptr<Gpu> gpu_;
    EventHandle handle_;
};

EventHandle HandleOf(Event &event) {
    return *static_cast<EventHandle *>(event.HandleAddress());
}

[[noreturn]] void ThrowOutOfMemory(const Gpu &gpu, uint64_t bytes) {
    size_t free = 0, total = 0;
    const bool is_known = gpu.Calls().memory_info(&free, &total) == SUCCESS;
    throw rawduck::Error(
        ErrorCode::NO_SPACE,
        gpu.Name() + " has no room for " + std::to_string(bytes) + " bytes" +
            (is_known
                 ? " (" + std::to_string(free >> 20) + " MiB of " + std::to_string(total >> 20) + " are free)"
                 : "") +
            "; ask for less at a time (batch_rows), let earlier batches go, or free what other "
            "libraries keep");
}

} // namespace

CudaDevice::CudaDevice(std::shared_ptr<Gpu> gpu)
    : gpu_(std::move(gpu)), streams_(std::make_shared<Streams>(gpu_)) {}

//! A second time where there is no room, when what was let go is back, and in one piece.
Result CudaDevice::TryAllocate(DevicePointer &pointer, uint64_t bytes, Stream stream) {
    const Driver &driver = gpu_->Calls();
    const auto allocate = [&] {
        return driver.memory_allocate(&pointer, std::max(bytes, LEAST_BYTES), gpu_->MemoryPool(), stream);
    };
    const Result result = allocate();
    if (result != OUT_OF_MEMORY) {
        return result;
    }
    IdleRelease::OfProcess().Wait();
    streams_->AwaitFreed();
    RAWDUCK_CUDA(driver, pool_trim, "giving back memory of " + gpu_->Name(), gpu_->MemoryPool(), 0);
    return allocate();
}

Memory CudaDevice::Allocate(uint64_t bytes, Purpose purpose) {
    gpu_->ThrowNoted();
    const Current current(*gpu_);
    DevicePointer pointer = 0;
    const Result result =
        TryAllocate(pointer, bytes, purpose == Purpose::COPIED ? streams_->Copying() : streams_->Working());
    if (result == OUT_OF_MEMORY) {
        ThrowOutOfMemory(*gpu_, bytes);
    }
    gpu_->Calls().Check(result, Driver::memory_allocate_symbol,
                        "allocating " + std::to_string(bytes) + " bytes on " + gpu_->Name());
    auto *data = reinterpret_cast<uint8_t *>(pointer);
    // Where the handle cannot be made, its deleter is called, too.
    return {std::shared_ptr<uint8_t>(
                data, [streams = streams_, purpose](uint8_t *freed) { streams->Free(freed, purpose); }),
            bytes};
}

void CudaDevice::CopyInSlot(uint8_t *device_to, const uint8_t *slot_from, uint64_t bytes) {
    const Current current(*gpu_);
    RAWDUCK_CUDA(gpu_->Calls(), copy_in, "copying to " + gpu_->Name(), PointerOf(device_to), slot_from, bytes,
                 streams_->Copying());
    gpu_->NoteCopy(slot_from, streams_->Copying());
}

std::shared_ptr<Event> CudaDevice::Record(Stream stream, unsigned flags) {
    const Current current(*gpu_);
    EventHandle handle = nullptr;
    RAWDUCK_CUDA(gpu_->Calls(), event_create, "making an event on " + gpu_->Name(), &handle,
                 EVENT_DISABLE_TIMING | flags);
    const auto event = std::make_shared<CudaEvent>(gpu_, handle);
    RAWDUCK_CUDA(gpu_->Calls(), event_record, "recording an event on " + gpu_->Name(), handle, stream);
    return event;
}

std::shared_ptr<Event> CudaDevice::CopiesSoFar() {
    return Record(streams_->Copying(), EVENT_BLOCKING_SYNC);
}

void CudaDevice::WaitFor(Event &copies) {
    const Current current(*gpu_);
    RAWDUCK_CUDA(gpu_->Calls(), stream_wait, "ordering streams of " + gpu_->Name(), streams_->Working(),
                 HandleOf(copies), 0);
}

void CudaDevice::CopyInPinned(const std::vector<CopiedPiece> &pieces) {
    const Driver &driver = gpu_->Calls();
    if (!driver.copy_batch) { // of drivers before CUDA 13
        Pull(pieces, Beside::ALL_BUT_COPIES);
        return;
    }
    std::vector<DevicePointer> to, from;
    std::vector<size_t> bytes;
    for (const CopiedPiece &piece : pieces) {
        to.push_back(PointerOf(piece.device_to));
        from.push_back(PointerOf(piece.from));
        bytes.push_back(piece.bytes);
    }
    CopyAttributes attributes;
    attributes.to.id = gpu_->Ordinal();
    size_t first = 0; // of the pieces that have these attributes
    const Current current(*gpu_);
    RAWDUCK_CUDA(driver, copy_batch, "copying to " + gpu_->Name(), to.data(), from.data(), bytes.data(),
                 pieces.size(), &attributes, &first, 1, streams_->Copying());
}

void CudaDevice::CopyIn(uint8_t *device_to, const void *from, uint64_t bytes) {
    const Current current(*gpu_);
    streams_->CopyIn(device_to, static_cast<const uint8_t *>(from), bytes,
                     [this](const CopiedPiece &piece) { Pull({piece}, Beside::NONE); });
}

std::unique_ptr<Answer> CudaDevice::AskFor(const uint8_t *device_from, uint64_t bytes) {
    const Current current(*gpu_);
    std::unique_ptr<Answer> answer = Streams::AskFor(streams_, device_from, bytes);
    if (!answer) {
        std::vector<uint8_t> found(bytes);
        streams_->CopyOut(found.data(), device_from, bytes);
        answer = std::make_unique<ReadyAnswer>(std::move(found));
    }
    return answer;
}

void CudaDevice::CopyOut(void *to, const uint8_t *device_from, uint64_t bytes) {
    const Current current(*gpu_);
    streams_->CopyOut(static_cast<uint8_t *>(to), device_from, bytes);
}

void CudaDevice::Copy(uint8_t *device_to, const uint8_t *device_from, uint64_t bytes) {
    if (bytes > 0) {
        const Current current(*gpu_);
        RAWDUCK_CUDA(gpu_->Calls(), copy, "copying on " + gpu_->Name(), PointerOf(device_to),
                     PointerOf(device_from), bytes, streams_->Working());
    }
}

void CudaDevice::Fill(uint8_t *device_to, uint8_t byte, uint64_t bytes) {
    if (bytes > 0) {
        const Current current(*gpu_);
        RAWDUCK_CUDA(gpu_->Calls(), fill, "filling memory of " + gpu_->Name(), PointerOf(device_to), byte,
                     bytes, streams_->Working());
    }
}

std::shared_ptr<Event> CudaDevice::Ready() {
    return Record(streams_->Working(), 0);
}

void CudaDevice::MakeWait(uint64_t stream, Event &ready) {
    const Current current(*gpu_);
    RAWDUCK_CUDA(gpu_->Calls(), stream_wait, "making a stream wait for a batch on " + gpu_->Name(),
                 reinterpret_cast<Stream>(stream), HandleOf(ready), 0);
}

void CudaDevice::LetGoWhenIdle(std::shared_ptr<void> kept) noexcept {
    if (gpu_->IsInherited()) {
        return; // nothing is given back
    }
    try {
        IdleRelease::OfProcess().Add(gpu_, kept);
    } catch (const std::exception &) { // no memory, or no thread
        gpu_->WaitForAllNoted();
    }
}

std::shared_ptr<Event> CudaDevice::AskForReads(const RingArguments &arguments, uint64_t blocks) {
    Launch(ASK_KERNEL, blocks, &arguments, sizeof(arguments), Beside::NONE);
    return Record(streams_->Working(), EVENT_BLOCKING_SYNC);
}

void CudaDevice::Launch(const char *kernel, uint64_t blocks, const void *arguments, uint64_t, Beside beside) {
    RAWDUCK_INVARIANT(blocks <= std::numeric_limits<int32_t>::max(), "a launch has at most 2^31 - 1 blocks");
    const Function function = gpu_->Kernel(kernel);
    RAWDUCK_INVARIANT(function, "only kernels that there are can be launched");
    const Current current(*gpu_);
    void *parameters[] = {const_cast<void *>(arguments)};
    RAWDUCK_CUDA(gpu_->Calls(), launch, std::string("launching ") + kernel + " on " + gpu_->Name(), function,
                 static_cast<unsigned>(blocks), 1, 1, BLOCK, 1, 1, 0,
                 beside == Beside::NONE ? streams_->Working() : streams_->Copying(), parameters, nullptr);
}

} // namespace rawduck::gpu::cuda
