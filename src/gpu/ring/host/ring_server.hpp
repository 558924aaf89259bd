//! The processor's side of a ring (gpu/ring/asked_reads.hpp): threads that read what a kernel asks for.
#pragma once

#include "gpu/ring/asked_reads.hpp"
#include "io/block_io.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace rawduck::gpu {

//! Told nothing by a device, and tells it nothing but by the ring: beside a kernel that waits, many calls of a driver wait,
//! too. Thread-safe.
class RingServer {
  public:
    //! `ring`: what its kernel gets, in memory that lives longer; so does `io`. `data` is the host's address of its data.
    //! Throws Error where threads cannot be started.
    RingServer(BlockIo &io, const RingArguments &ring, char *data, uint64_t threads);
    //! The kernel has ended.
    ~RingServer();
    RingServer(const RingServer &) = delete;
    RingServer &operator=(const RingServer &) = delete;

    //! All waits of the kernel end, now and later.
    void Abort() noexcept;
    //! The kernel has ended: the threads end, when what they are reading is there. Whether they have, within `most`.
    bool StopWithin(std::chrono::milliseconds most) noexcept;
    //! What a read has failed of, which has aborted the ring. Null: none has.
    std::exception_ptr Failure() const;
    //! Processor time of the threads that have ended.
    uint64_t CpuNs() const { return cpu_ns_; }

  private:
    void Join() noexcept;
    void Run() noexcept;
    void Serve();
    //! The next tickets that are asked for. None: all are served, or the kernel has ended.
    std::vector<u64> Take();
    bool IsAskedFor(u64 ticket) const;
    Segment Read(u64 ticket) const;
    void Publish(u64 ticket) noexcept;

    BlockIo &io_;
    const RingArguments ring_;
    char *const data_;
    const uint64_t at_a_time_;
    std::atomic<bool> is_over_{false};
    std::atomic<uint64_t> cpu_ns_{0};
    std::mutex looking_; //!< of the one thread that looks for requests
    u64 next_ticket_ = 0;
    mutable std::mutex mutex_; //!< of what follows, but for the threads
    std::exception_ptr failure_;
    std::condition_variable has_ended_;
    uint64_t ended_ = 0;
    std::vector<std::thread> threads_;
};

} // namespace rawduck::gpu
