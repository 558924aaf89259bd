//! Reads of a target that a device asks for and this process serves, from the first to the last one.
#pragma once

#include "gpu/device/device.hpp"
#include "gpu/ring/host/ring_server.hpp"
#include "io/registered_memory.hpp"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace rawduck::gpu {

struct RingOptions {
    std::vector<uint64_t> offsets; //!< bytes of the target, multiples of its LBA size
    uint64_t read_bytes = 0;       //!< of each read, a multiple of the LBA size
    uint64_t blocks = 1;           //!< thread blocks, one read of each at a time; a device may take fewer
    uint64_t slots = 1;
    uint64_t threads = 1;
    std::chrono::nanoseconds patience = std::chrono::seconds(30);
};

//! Not thread-safe, but for Abort.
class RingRun {
  public:
    //! Throws Error, also where memory cannot be pinned.
    RingRun(std::shared_ptr<Device> device, std::unique_ptr<BlockIo> io, RingOptions options);
    //! Ends the kernel first, if need be.
    ~RingRun();
    RingRun(const RingRun &) = delete;
    RingRun &operator=(const RingRun &) = delete;

    //! Once. Until Wait says that it has ended, the device must not be used otherwise.
    void Start();
    //! Whether all is on the device; false: not yet, after `most`. Throws Error where it has ended otherwise, also while a
    //! read hangs.
    bool Wait(std::chrono::milliseconds most);
    //! Ends the kernel. Whether the threads that serve it have ended, too, within `most`; where a read hangs, they have not.
    bool EndWithin(std::chrono::milliseconds most) noexcept;
    //! Wait throws Error INTERRUPTED, unless all is there.
    void Abort() noexcept;

    //! On the device: the data of all reads, one behind the other, and of each how long it took, in nanoseconds.
    const uint8_t *Data() const { return data_.Data(); }
    const uint8_t *Nanoseconds() const { return nanoseconds_.Data(); }
    //! Thread blocks that were started, and multiprocessors that they ran on; 0: it has none. When it has ended.
    uint64_t Blocks() const { return blocks_; }
    uint64_t MultiprocessorsHeld() const;
    uint64_t Multiprocessors() const { return device_->Multiprocessors(); }
    uint64_t ServerCpuNs() const { return server_->CpuNs(); }
    const std::string &Engine() const { return io_->Caps().engine; }

  private:
    RingArguments Arguments();
    void EndKernel() noexcept;
    void ThrowIfEnded();

    const std::shared_ptr<Device> device_;
    const std::unique_ptr<BlockIo> io_;
    const RingOptions options_;
    const uint64_t blocks_, slot_bytes_, marks_bytes_;
    // Pinned memory is given back when the device has ended all that it does, and that of the device behind it.
    Memory offsets_, data_, nanoseconds_, multiprocessors_, given_back_, state_;
    RegisteredMemory host_;
    std::shared_ptr<void> pinned_;
    std::unique_ptr<RingServer> server_;

    std::mutex mutex_; //!< of what follows
    std::condition_variable has_ended_;
    bool is_ended_ = false;
    std::exception_ptr device_failure_;
    std::thread waiter_;
};

} // namespace rawduck::gpu
