//! A GPU of this machine: its primary context, which it shares with other libraries of the process, the kernels, a pool
//! of its memory, and host memory that is pinned for it.
#pragma once

#include "gpu/device/cuda/driver.hpp"
#include "gpu/device/device.hpp"
#include "gpu/kernels/images.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace rawduck::gpu::cuda {

//! Thread-safe, but in a child made by fork(): there, everything throws, and nothing is given back, because the driver
//! does not survive a fork.
class Gpu : public MemoryPinner, public std::enable_shared_from_this<Gpu> {
  public:
    //! Kept as long as the process lives, once it is open: host memory is pinned once.
    static std::shared_ptr<Gpu> Get(int ordinal);
    //! Throws Error where the GPU cannot be used.
    Gpu(const Driver &driver, int ordinal, const std::vector<KernelImage> &images);
    ~Gpu() override;
    Gpu(const Gpu &) = delete;
    Gpu &operator=(const Gpu &) = delete;

    const Driver &Calls() const { return driver_; }
    int Ordinal() const { return ordinal_; }
    //! "GPU 0 (NVIDIA H100 80GB HBM3)", for messages.
    const std::string &Name() const { return name_; }
    uint64_t Multiprocessors() const { return multiprocessors_; }
    uint64_t PinnedBytes() const { return pinned_bytes_.load(std::memory_order_relaxed); }
    Pool MemoryPool() const { return pool_; }
    //! Null where there is no such kernel.
    Function Kernel(const char *name) const;
    //! Whether this process is a child of the one that opened the GPU.
    bool IsInherited() const;

    //! All GPUs of the process: what is pinned is so for all of them.
    const void *Group() const override { return &driver_; }
    //! Throws Error, but where the system lets nothing more be pinned.
    std::shared_ptr<void> Pin(void *memory, uint64_t bytes) override;

    //! A slot for CopyInSlot; waits for one, and until what was copied from it has been.
    Memory TakeSlot();
    //! `from` lies in a slot: this stream copies from it now.
    void NoteCopy(const uint8_t *from, Stream stream);
    //! See Device.
    Memory TryTakeChunk();
    //! Pinned memory for a device that is being opened, and back, when it is closed; the context is current.
    uint8_t *TakeScratch();
    void GiveBackScratch(uint8_t *scratch) noexcept;
    static constexpr uint64_t SCRATCH_BYTES = 4 << 20;
    static constexpr uint64_t CHUNK_REGION_BYTES = 8 << 20;

    //! As long as one is there the pool keeps all that is given back to it; afterwards a part.
    std::shared_ptr<void> KeepFreedMemory();
    //! See Device.
    void WaitForAllNoted() noexcept;

    //! Keeps the first failure of a call that nothing can be thrown from, for ThrowNoted.
    void Note(Result result, const char *function) const noexcept;
    void ThrowNoted();

  private:
    struct Slot {
        uint8_t *data;
        EventHandle copied;
        bool is_copied_from = false; //!< `copied` is recorded
        bool is_taken = false;
    };

    void Open(const std::vector<KernelImage> &images);
    void Close() noexcept;
    void LoadKernels(const std::vector<KernelImage> &images);
    //! Throws where it fails, but for an image that the driver refuses when it is not the last one.
    bool TryLoad(const KernelImage &image, bool is_last);
    void CreatePool();
    Result SetKept(uint64_t bytes) const noexcept;
    void ForgoFreedMemory() noexcept;
    uint8_t *AllocatePinned(uint64_t bytes);
    void Unpin(void *memory, uint64_t bytes) noexcept;
    Slot &AddSlot();
    //! Null where it fails, and there are others.
    Slot *TryAddSlot();
    void GiveBackSlot(uint8_t *data) noexcept;
    //! Where it fails, it is not tried again for some time.
    void TryAddChunks();
    void GiveBackChunk(uint8_t *data) noexcept;

    const Driver &driver_;
    const int ordinal_;
    const uint64_t fork_generation_;
    DeviceNumber device_ = 0;
    std::string name_;
    int architecture_ = 0;
    uint64_t multiprocessors_ = 0;
    bool has_host_pointers_ = false;
    Context context_ = nullptr;
    Pool pool_ = nullptr;
    uint64_t kept_bytes_ = 0; //!< by the pool, where nobody keeps freed memory
    Module module_ = nullptr;
    std::map<std::string, Function> kernels_;
    std::atomic<uint64_t> pinned_bytes_{0};

    std::mutex mutex_; //!< of what follows
    std::condition_variable slot_is_back_;
    std::vector<std::unique_ptr<Slot>> slots_; //!< the one that was given back longest ago first
    std::vector<uint8_t *> scratches_;         //!< free ones
    size_t keepers_ = 0;                       //!< of freed memory
    std::vector<uint8_t *> chunk_regions_;     //!< of CHUNK_REGION_BYTES
    std::vector<uint8_t *> free_chunks_;
    std::chrono::steady_clock::time_point pins_chunks_from_{}; //!< not before

    mutable std::mutex failure_mutex_; //!< of what follows; taken last
    mutable std::string failure_;

    friend class Current;
};

//! Makes the context that of this thread while it lives. Calls that wait do not disturb what other libraries of the process
//! capture meanwhile into a graph, but for context_synchronize.
class Current {
  public:
    //! Throws Error.
    explicit Current(const Gpu &gpu);
    //! IsSet says whether it could be done.
    Current(Gpu &gpu, std::nothrow_t) noexcept;
    ~Current();
    Current(const Current &) = delete;
    Current &operator=(const Current &) = delete;

    bool IsSet() const { return is_set_; }

  private:
    const Gpu &gpu_;
    bool is_set_ = false, is_relaxed_ = false;
    int capture_mode_ = CAPTURE_RELAXED; //!< of the thread before, once it is relaxed
};

//! A call that waits, enters a context, or trims: it may report the failure of an earlier launch instead of being done, and
//! does no harm when it is done twice. What frees, destroys, releases or leaves is called once: it may have been done though
//! it reports a failure, and a second time it would give back what is somebody else's by then. Where it has not been done,
//! something is lost, and the failure is noted. Returns the result of the last time.
template <class CALL> Result TwiceAtMost(const CALL &call) {
    const Result result = call();
    return result == SUCCESS ? result : call();
}

} // namespace rawduck::gpu::cuda
