#include "gpu/device/cuda/gpu.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "common/process/fork_generation.hpp"
#include "gpu/kernels/host_kernels.hpp"

#include <algorithm>

namespace rawduck::gpu::cuda {
namespace {

constexpr std::chrono::seconds PINS_AGAIN_AFTER{10}; // where chunks could not be pinned

//! What the pool keeps of memory that was given back, so that the next scan need not map it again. While one is open it
//! keeps all: mapping takes longer than decoding.
constexpr uint64_t KEPT_BYTES = 4ull << 30, KEPT_SHARE = 16; // and at most one of so many parts

//! Of the images of a form for this architecture or earlier ones (of its generation, where it is not PTX) the latest, or
//! null.
const KernelImage *LatestImage(const std::vector<KernelImage> &images, int architecture, bool is_ptx) {
    const KernelImage *latest = nullptr;
    for (const KernelImage &image : images) {
        const bool fits = image.is_ptx == is_ptx && image.architecture <= architecture &&
                          (is_ptx || image.architecture / 10 == architecture / 10);
        if (fits && (!latest || image.architecture > latest->architecture)) {
            latest = &image;
        }
    }
    return latest;
}

//! Whether the driver cannot use an image that is sound.
bool IsRefused(Result loaded) {
    return loaded == UNSUPPORTED_PTX_VERSION || loaded == NO_BINARY_FOR_GPU || loaded == INVALID_IMAGE;
}

} // namespace

std::shared_ptr<Gpu> Gpu::Get(int ordinal) {
    static std::mutex &mutex = *new std::mutex;
    static auto &opened =
        *new std::map<int, std::shared_ptr<Gpu>>; // never destroyed: the driver may be gone before
    const std::lock_guard<std::mutex> lock(mutex);
    std::shared_ptr<Gpu> &gpu = opened[ordinal];
    if (!gpu) {
        gpu = std::make_shared<Gpu>(Driver::Get(), ordinal, KernelImages());
    }
    return gpu;
}

Gpu::Gpu(const Driver &driver, int ordinal, const std::vector<KernelImage> &images)
    : driver_(driver), ordinal_(ordinal), fork_generation_(ForkGeneration()) {
    if (ordinal < 0 || ordinal >= driver.DeviceCount()) {
        throw rawduck::Error(ErrorCode::NOT_FOUND,
                             "there is no GPU " + std::to_string(ordinal) + "; this machine has " +
                                 std::to_string(driver.DeviceCount()) + ", numbered from 0; see nvidia-smi");
    }
    try {
        Open(images);
    } catch (...) {
        Close();
        throw;
    }
}

Gpu::~Gpu() {
    Close();
}

void Gpu::Open(const std::vector<KernelImage> &images) {
    name_ = "GPU " + std::to_string(ordinal_);
    RAWDUCK_CUDA(driver_, device_get, "opening " + name_, &device_, ordinal_);
    char model[128] = {};
    RAWDUCK_CUDA(driver_, device_name, "asking for the name of " + name_, model, sizeof(model) - 1, device_);
    name_ += std::string(" (") + model + ")";
    const auto attribute = [&](Attribute wanted) {
        int value = 0;
        RAWDUCK_CUDA(driver_, device_attribute, "asking what " + name_ + " can do", &value, wanted, device_);
        return value;
    };
    multiprocessors_ = static_cast<uint64_t>(attribute(MULTIPROCESSOR_COUNT));
    has_host_pointers_ = attribute(HOST_POINTERS_OF_REGISTERED) != 0;
    architecture_ = 10 * attribute(COMPUTE_CAPABILITY_MAJOR) + attribute(COMPUTE_CAPABILITY_MINOR);
    if (!attribute(MEMORY_POOLS_SUPPORTED)) {
        throw rawduck::Error(ErrorCode::UNSUPPORTED, name_ + " has no memory pools in this driver, which "
                                                             "rawduck needs; install a newer driver");
    }
    RAWDUCK_CUDA(driver_, context_retain, "taking the context of " + name_, &context_, device_);
    const Current current(*this);
    LoadKernels(images);
    CreatePool();
}

void Gpu::LoadKernels(const std::vector<KernelImage> &images) {
    const KernelImage *machine_code = LatestImage(images, architecture_, false);
    const KernelImage *ptx = LatestImage(images, architecture_, true);
    if (!machine_code && !ptx) {
        throw rawduck::Error(
            ErrorCode::UNSUPPORTED,
            images.empty()
                ? "this rawduck was built without kernels for GPUs: install requirements-gpu.txt into the "
                  "environment that builds it, and build it again"
                : name_ + " is of compute capability " + std::to_string(architecture_ / 10) + "." +
                      std::to_string(architecture_ % 10) + "; rawduck has kernels from 7.5 on");
    }
    // Machine code of the same generation may be refused: the GPUs of boards do not take that of cards.
    if (!machine_code || !TryLoad(*machine_code, !ptx)) {
        TryLoad(*ptx, true);
    }
    u64 count = 0;
    const HostKernel *kernels = HostKernels(count);
    for (u64 i = 0; i < count; i++) {
        RAWDUCK_CUDA(driver_, module_function,
                     std::string("finding the kernel ") + kernels[i].name + " on " + name_,
                     &kernels_[kernels[i].name], module_, kernels[i].name);
    }
}

bool Gpu::TryLoad(const KernelImage &image, bool is_last) {
    const Result loaded = driver_.module_load(&module_, image.data);
    if (IsRefused(loaded) && !is_last) {
        return false;
    }
    if (IsRefused(loaded)) {
        throw rawduck::Error(ErrorCode::UNSUPPORTED,
                             "the driver does not take rawduck's kernels for " + name_ + " (sm_" +
                                 std::to_string(image.architecture) + (image.is_ptx ? ", PTX): " : "): ") +
                                 driver_.Describe(loaded) + "; install a newer driver");
    }
    driver_.Check(loaded, Driver::module_load_symbol, "loading the kernels onto " + name_);
    return true;
}

void Gpu::CreatePool() {
    PoolProperties properties;
    properties.location_id = device_;
    RAWDUCK_CUDA(driver_, pool_create, "making a memory pool on " + name_, &pool_, &properties);
    size_t free = 0, total = 0;
    RAWDUCK_CUDA(driver_, memory_info, "asking for the memory of " + name_, &free, &total);
    kept_bytes_ = std::min<uint64_t>(KEPT_BYTES, total / KEPT_SHARE);
    driver_.Check(SetKept(kept_bytes_), Driver::pool_set_symbol, "setting up a memory pool on " + name_);
}

Result Gpu::SetKept(uint64_t bytes) const noexcept {
    return driver_.pool_set(pool_, POOL_RELEASE_THRESHOLD, &bytes);
}

std::shared_ptr<void> Gpu::KeepFreedMemory() {
    {
        const Current current(*this);
        const std::lock_guard<std::mutex> lock(mutex_);
        if (keepers_ == 0) {
            driver_.Check(SetKept(UINT64_MAX), Driver::pool_set_symbol, "keeping memory of " + name_);
        }
        keepers_++;
    }
    return {this, [self = shared_from_this()](void *) { self->ForgoFreedMemory(); }};
}

// What batches have that somebody still uses, or the GPU, goes at the next call of anybody that waits for it.
void Gpu::ForgoFreedMemory() noexcept {
    if (IsInherited()) {
        return;
    }
    const Current current(*this, std::nothrow);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--keepers_ == 0 && current.IsSet()) {
        Note(SetKept(kept_bytes_), Driver::pool_set_symbol);
        Note(TwiceAtMost([&] { return driver_.pool_trim(pool_, kept_bytes_); }), Driver::pool_trim_symbol);
    }
}

void Gpu::WaitForAllNoted() noexcept {
    const Current current(*this, std::nothrow);
    if (current.IsSet()) { // not in a child made by fork()
        Note(TwiceAtMost([&] { return driver_.context_synchronize(); }), Driver::context_synchronize_symbol);
    }
}

void Gpu::Close() noexcept {
    if (!context_ || IsInherited()) {
        return;
    }
    {
        const Current current(*this, std::nothrow);
        for (const auto &slot : slots_) {
            Note(driver_.event_destroy(slot->copied), Driver::event_destroy_symbol);
            Note(driver_.host_free(slot->data), Driver::host_free_symbol);
        }
        for (const auto *pinned : {&scratches_, &chunk_regions_}) {
            for (uint8_t *memory : *pinned) {
                Note(driver_.host_free(memory), Driver::host_free_symbol);
            }
        }
        if (pool_) {
            Note(driver_.pool_destroy(pool_), Driver::pool_destroy_symbol);
        }
        if (module_) {
            Note(driver_.module_unload(module_), Driver::module_unload_symbol);
        }
    }
    Note(driver_.context_release(device_), Driver::context_release_symbol);
    context_ = nullptr;
}

Function Gpu::Kernel(const char *name) const {
    const auto found = kernels_.find(name);
    return found == kernels_.end() ? nullptr : found->second;
}

bool Gpu::IsInherited() const {
    return fork_generation_ != ForkGeneration();
}

uint8_t *Gpu::AllocatePinned(uint64_t bytes) {
    const Current current(*this);
    void *pinned = nullptr;
    RAWDUCK_CUDA(driver_, host_allocate,
                 "pinning " + std::to_string(bytes >> 20) + " MiB of host memory for " + name_ + ", beside " +
                     std::to_string(PinnedBytes() >> 20) + " MiB that are pinned",
                 &pinned, bytes, HOST_PORTABLE);
    pinned_bytes_ += bytes;
    return static_cast<uint8_t *>(pinned);
}

std::shared_ptr<void> Gpu::Pin(void *memory, uint64_t bytes) {
    if (!has_host_pointers_) {
        return nullptr;
    }
    const Current current(*this);
    const Result result = driver_.host_register(memory, bytes, HOST_PORTABLE);
    // What a process may pin is bounded, and so is what can be pinned: the memory is copied through slots. The system's
    // own refusals come as the last two.
    if (result == OUT_OF_MEMORY || result == ALREADY_REGISTERED || result == NOT_PERMITTED ||
        result == NOT_SUPPORTED || result == OPERATING_SYSTEM || result == INVALID_VALUE) {
        return nullptr;
    }
    driver_.Check(result, Driver::host_register_symbol,
                  "pinning " + std::to_string(bytes) + " bytes of host memory for " + name_);
    pinned_bytes_ += bytes;
    return {memory, [self = shared_from_this(), bytes](void *pinned) { self->Unpin(pinned, bytes); }};
}

void Gpu::Unpin(void *memory, uint64_t bytes) noexcept {
    const Current current(*this, std::nothrow);
    if (current.IsSet()) { // not in a child made by fork()
        WaitForAllNoted();
        Note(driver_.host_unregister(memory), Driver::host_unregister_symbol);
        pinned_bytes_ -= bytes;
    }
}

Gpu::Slot &Gpu::AddSlot() {
    auto slot = std::make_unique<Slot>();
    const Current current(*this);
    RAWDUCK_CUDA(driver_, event_create, "making an event on " + name_, &slot->copied,
                 EVENT_DISABLE_TIMING | EVENT_BLOCKING_SYNC);
    try {
        slots_.reserve(slots_.size() + 1);
        slot->data = AllocatePinned(Device::SLOT_BYTES);
    } catch (...) {
        Note(driver_.event_destroy(slot->copied), Driver::event_destroy_symbol);
        throw;
    }
    slots_.push_back(std::move(slot));
    return *slots_.back();
}

Gpu::Slot *Gpu::TryAddSlot() {
    try {
        return &AddSlot();
    } catch (const rawduck::Error &) {
        if (slots_.empty()) {
            throw;
        }
        return nullptr;
    }
}

Memory Gpu::TakeSlot() {
    Slot *slot = nullptr;
    {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!slot) {
            const auto found = std::find_if(slots_.begin(), slots_.end(),
                                            [](const auto &candidate) { return !candidate->is_taken; });
            Slot *free = found == slots_.end() ? nullptr : found->get();
            const bool is_more_wanted = !free || free->is_copied_from;
            slot = is_more_wanted && slots_.size() < Device::SLOT_COUNT ? TryAddSlot() : nullptr;
            slot = slot ? slot : free;
            if (!slot) {
                slot_is_back_.wait(lock);
            }
        }
        slot->is_taken = true;
    }
    const auto self = shared_from_this();
    Memory memory(std::shared_ptr<uint8_t>(slot->data, [self](uint8_t *data) { self->GiveBackSlot(data); }),
                  Device::SLOT_BYTES);
    if (slot->is_copied_from) {
        const Current current(*this);
        RAWDUCK_CUDA(driver_, event_synchronize, "waiting for a copy to " + name_, slot->copied);
        slot->is_copied_from = false;
    }
    return memory;
}

void Gpu::GiveBackSlot(uint8_t *data) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                   [&](const auto &candidate) { return candidate->data == data; });
    (*slot)->is_taken = false;
    std::rotate(slot, slot + 1, slots_.end());
    slot_is_back_.notify_one();
}

void Gpu::NoteCopy(const uint8_t *from, Stream stream) {
    Slot *slot = nullptr;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (const auto &candidate : slots_) {
            if (from >= candidate->data && from < candidate->data + Device::SLOT_BYTES) {
                slot = candidate.get();
            }
        }
    }
    RAWDUCK_INVARIANT(slot && slot->is_taken, "what is copied lies in a slot that somebody has taken");
    const Result recorded = driver_.event_record(slot->copied, stream);
    slot->is_copied_from = recorded == SUCCESS;
    if (recorded != SUCCESS) { // nothing else would tell when the slot can be used again
        WaitForAllNoted();
        driver_.Check(recorded, Driver::event_record_symbol, "noting a copy to " + name_);
    }
}

void Gpu::TryAddChunks() {
    constexpr uint64_t CHUNKS = CHUNK_REGION_BYTES / Device::CHUNK_BYTES;
    const uint64_t regions = chunk_regions_.size() + 1;
    const auto now = std::chrono::steady_clock::now();
    if (regions * CHUNK_REGION_BYTES > Device::MOST_CHUNK_BYTES || now < pins_chunks_from_) {
        return;
    }
    chunk_regions_.reserve(regions);
    free_chunks_.reserve(regions * CHUNKS); // so that giving back takes no memory
    try {
        chunk_regions_.push_back(AllocatePinned(CHUNK_REGION_BYTES));
    } catch (const rawduck::Error &) { // results take ordinary memory, and one more copy
        pins_chunks_from_ = now + PINS_AGAIN_AFTER;
        return;
    }
    for (uint64_t i = 0; i < CHUNKS; i++) {
        free_chunks_.push_back(chunk_regions_.back() + i * Device::CHUNK_BYTES);
    }
}

Memory Gpu::TryTakeChunk() {
    uint8_t *chunk = nullptr;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (free_chunks_.empty()) {
            TryAddChunks();
        }
        if (free_chunks_.empty()) {
            return {};
        }
        chunk = free_chunks_.back();
        free_chunks_.pop_back();
    }
    const auto self = shared_from_this();
    return {std::shared_ptr<uint8_t>(chunk, [self](uint8_t *data) { self->GiveBackChunk(data); }),
            Device::CHUNK_BYTES};
}

void Gpu::GiveBackChunk(uint8_t *data) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_chunks_.push_back(data);
}

uint8_t *Gpu::TakeScratch() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (scratches_.empty()) {
        return AllocatePinned(SCRATCH_BYTES);
    }
    uint8_t *scratch = scratches_.back();
    scratches_.pop_back();
    return scratch;
}

void Gpu::GiveBackScratch(uint8_t *scratch) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    scratches_.push_back(scratch);
}

void Gpu::Note(Result result, const char *function) const noexcept {
    if (result == SUCCESS ||
        result == DEINITIALIZED) { // the process ends, and the driver has given back everything
        return;
    }
    const std::lock_guard<std::mutex> lock(failure_mutex_);
    if (failure_.empty()) {
        failure_ = std::string(function) + ": " + driver_.Describe(result);
    }
}

void Gpu::ThrowNoted() {
    std::string failure;
    {
        const std::lock_guard<std::mutex> lock(failure_mutex_);
        failure.swap(failure_);
    }
    if (!failure.empty()) {
        throw rawduck::Error(ErrorCode::IO,
                             "giving back what was in use on " + name_ + " failed before: " + failure);
    }
}

Current::Current(const Gpu &gpu) : gpu_(gpu) {
    if (gpu.IsInherited()) {
        throw rawduck::Error(ErrorCode::UNSUPPORTED,
                             gpu.Name() + " was opened before fork(), and CUDA does not survive that; start "
                                          "processes by spawn, or use the GPU in one of them only");
    }
    RAWDUCK_CUDA(gpu.driver_, context_push, "entering the context of " + gpu.Name(), gpu.context_);
    const Result relaxed = gpu.driver_.exchange_capture_mode(&capture_mode_);
    if (relaxed != SUCCESS) {
        Context popped = nullptr;
        gpu.Note(gpu.driver_.context_pop(&popped), Driver::context_pop_symbol);
        gpu.driver_.Check(relaxed, Driver::exchange_capture_mode_symbol,
                          "entering the context of " + gpu.Name());
    }
    is_set_ = is_relaxed_ = true;
}

Current::Current(Gpu &gpu, std::nothrow_t) noexcept : gpu_(gpu) {
    if (!gpu.IsInherited()) {
        const Result result = TwiceAtMost([&] { return gpu.driver_.context_push(gpu.context_); });
        gpu.Note(result, Driver::context_push_symbol);
        is_set_ = result == SUCCESS;
    }
    if (is_set_) {
        const Result relaxed = gpu.driver_.exchange_capture_mode(&capture_mode_);
        gpu.Note(relaxed, Driver::exchange_capture_mode_symbol);
        is_relaxed_ = relaxed == SUCCESS;
    }
}

Current::~Current() {
    if (is_relaxed_) {
        gpu_.Note(gpu_.driver_.exchange_capture_mode(&capture_mode_), Driver::exchange_capture_mode_symbol);
    }
    if (is_set_) {
        Context popped = nullptr;
        gpu_.Note(gpu_.driver_.context_pop(&popped), Driver::context_pop_symbol);
    }
}

} // namespace rawduck::gpu::cuda
