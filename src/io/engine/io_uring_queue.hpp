//! The ring behind the io_uring engines: submission, waiting and failure, whatever a command is on the wire.
#pragma once

#include "common/memory/stable_memory.hpp"
#include "io/device/device.hpp"
#include "io/engine/ring/ring_buffers.hpp"
#include "io/engine/ring/ring_cache.hpp"
#include "io/engine/ring/ring_entries.hpp"

#include <atomic>
#include <liburing.h>
#include <mutex>
#include <optional>
#include <vector>

namespace rawduck {

//! Whether rings of one kind can be made, and how. Thread-safe.
class RingSupport {
  public:
    //! `base_flags` are those the kind cannot do without (IORING_SETUP_*), `opcodes` what it sends, and
    //! `missing_opcodes` a clause that says what to do about a kernel that lacks them.
    RingSupport(unsigned base_flags, std::vector<int> opcodes, std::string missing_opcodes);

    //! Empty when rings can be made; otherwise why not and what to do. Success is final; an obstacle may
    //! pass, so it is looked for again.
    std::string Obstacle();
    //! The flags for a queue; Obstacle must have been empty.
    unsigned SetupFlags(QueueUse use);

  private:
    void Probe();

    const unsigned base_flags_;
    const std::vector<int> opcodes_;
    const std::string missing_opcodes_;
    std::mutex mutex_; //!< guards what follows, and is held while a ring is tried out
    bool known_ = false;
    unsigned setup_flags_ = 0;
    std::string obstacle_;
};

//! Belongs to the thread that made it, unless it is shared. A command that the kernel has not taken yet is
//! "waiting"; the kernel takes them in order, and those of them that have an entry in the ring ("prepared")
//! are the first. What waits and what is in the kernel is at most the depth, and each entry in the kernel is
//! of one command that is handed out once.
//!
//! Pages that the ring knows (RingBuffers) are given back by other threads, which may not make the ring forget them
//! where it belongs to one thread. They close it then, if nothing is in flight; it is made anew when it is wanted.
class IoUringQueue : public Queue {
  public:
    static constexpr uint32_t MAX_DEPTH = 4096;

    //! NVMe commands need more of a ring: see RingEntries and LimitRingWorkers.
    enum class Carries : uint8_t { FILE_IO, NVME_COMMANDS };

    //! `alternative` is the engine to name when no more rings can be made.
    IoUringQueue(const std::string &target_name, uint32_t depth, unsigned setup_flags, Carries carries,
                 const char *alternative);
    ~IoUringQueue() override;
    IoUringQueue(const IoUringQueue &) = delete;
    IoUringQueue &operator=(const IoUringQueue &) = delete;

    bool Submit(Command &command) override;
    uint32_t Reap(Command **completed, uint32_t max, bool wait) override;
    uint32_t Depth() const override { return depth_; }

  protected:
    //! Fills in an entry; its user data is set afterwards. `buffer` is the number under which the ring knows the
    //! command's memory, or RingBuffers::NONE.
    virtual void Prepare(io_uring_sqe &entry, const Command &command, int buffer) = 0;
    //! Sets the command's result. `registered`: it was prepared with a buffer.
    virtual void Complete(Command &command, const io_uring_cqe &entry, bool registered) = 0;
    //! Which commands are prepared with a buffer.
    virtual RingBuffers::Use BufferUse() const = 0;
    //! Runs a command that nothing else is in flight with on the calling thread, where one system call can:
    //! then the device wakes that thread and no other, while the kernel completes a ring's write to a file in
    //! a worker. False when it has done nothing.
    virtual bool RunAlone(Command &) { return false; }

  private:
    //! An object of its own, since it is called until the destructor of the queue has begun.
    class Watcher final : public StableMemory::Watcher {
      public:
        explicit Watcher(IoUringQueue &queue) : queue_(queue) {}
        void PagesGo(char *, uint64_t, uint64_t number,
                     StableMemory::Afterwards &afterwards) noexcept override {
            if (number != 0) { // rings are told of nothing else
                queue_.Forget(number, afterwards);
            }
        }

      private:
        IoUringQueue &queue_;
    };

    void Forget(uint64_t range, StableMemory::Afterwards &afterwards) noexcept;
    void Begin();
    void EndIfDrained() noexcept;
    int FindBuffer(const Command &command);
    uint32_t ReapLocked(Command **completed, uint32_t max, bool wait);
    int Make(uint32_t entries);
    void Open();
    void Close();
    bool FinishAlone(Command **completed);
    void PrepareWaiting();
    void Enter(bool wait);
    void HandleEnterError(int error_number, bool wait);
    void WaitInKernel();
    uint32_t Collect(Command **completed, uint32_t max);
    uint32_t FailWaiting(Command **completed, uint32_t max);

    const std::string target_name_;
    const uint32_t depth_;
    std::optional<RingEntries> entries_; //!< of a ring that carries NVMe commands
    const char *const alternative_;

    //! Held by the queue's thread from the first command until all are reaped, so that nobody else touches the ring
    //! meanwhile. The lock of StableMemory is taken under it; the other way round it is only tried.
    std::mutex mutex_;
    bool begun_ = false;                 //!< of the queue's thread: it holds the lock
    std::atomic<bool> must_drop_{false}; //!< a range was removed while the lock was held
    Watcher watcher_{*this};
    bool watches_ = false;
    RingBuffers buffers_;
    RingKind kind_; //!< its entries may become fewer
    io_uring ring_ = {};
    bool open_ = false;
    std::vector<Command *> waiting_;
    size_t prepared_ = 0; //!< of those that wait, from the first: they have an entry
    uint32_t in_kernel_ = 0;
    uint32_t stalls_ = 0; //!< refusals in a row while the kernel had nothing else of ours to finish
    int broken_ = 0;      //!< errno of a submission that failed for good
};

} // namespace rawduck
