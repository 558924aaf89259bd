//! The ring behind the io_uring engines: submission, waiting and failure, whatever a command is on the wire.
#pragma once

#include "io/device/device.hpp"
#include "io/engine/ring_cache.hpp"

#include <liburing.h>
#include <mutex>
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
class IoUringQueue : public Queue {
  public:
    static constexpr uint32_t MAX_DEPTH = 4096;

    //! `alternative` is the engine to name when no more rings can be made.
    IoUringQueue(const std::string &target_name, uint32_t depth, unsigned setup_flags,
                 const char *alternative);
    ~IoUringQueue() override;
    IoUringQueue(const IoUringQueue &) = delete;
    IoUringQueue &operator=(const IoUringQueue &) = delete;

    bool Submit(Command &command) override;
    uint32_t Reap(Command **completed, uint32_t max, bool wait) override;
    uint32_t Depth() const override { return depth_; }

  protected:
    //! Fills in an entry; its user data is set afterwards.
    virtual void Prepare(io_uring_sqe &entry, const Command &command) = 0;
    //! Sets the command's result.
    virtual void Complete(Command &command, const io_uring_cqe &entry) = 0;
    //! Runs a command that nothing else is in flight with on the calling thread, where one system call can:
    //! then the device wakes that thread and no other, while the kernel completes a ring's write to a file in
    //! a worker. False when it has done nothing.
    virtual bool RunAlone(Command &) { return false; }

  private:
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
    const unsigned setup_flags_;
    const char *const alternative_;
    RingKind kind_ = {};
    io_uring ring_ = {};
    bool open_ = false;
    std::vector<Command *> waiting_;
    size_t prepared_ = 0; //!< of those that wait, from the first: they have an entry
    uint32_t in_kernel_ = 0;
    uint32_t stalls_ = 0; //!< refusals in a row while the kernel had nothing else of ours to finish
    int broken_ = 0;      //!< errno of a submission that failed for good
};

} // namespace rawduck
