#include "io/engine/io_uring_cmd.hpp"

#include "common/memory/aligned_buffer.hpp"
#include "io/device/nvme_device.hpp"
#include "io/engine/io_uring_queue.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

// Of Linux 5.19 (include/uapi/linux/io_uring.h), in case the C headers are older.
#ifndef IORING_SETUP_SQE128
#define IORING_SETUP_SQE128 (1U << 10)
#endif
#ifndef IORING_SETUP_CQE32
#define IORING_SETUP_CQE32 (1U << 11)
#endif

namespace rawduck {
namespace {

constexpr size_t BIG_ENTRY_BYTES = 128;
//! Where the NVMe command begins in an entry of that size: struct io_uring_sqe, field cmd.
constexpr size_t COMMAND_OFFSET = 48;
static_assert(sizeof(io_uring_sqe) == 64, "half of a big entry");
static_assert(sizeof(nvme_uring_cmd) <= BIG_ENTRY_BYTES - COMMAND_OFFSET, "the command fits");
static_assert(sizeof(nvme_uring_cmd) == offsetof(nvme_passthru_cmd64, result),
              "an nvme_uring_cmd is an nvme_passthru_cmd64 without its result");

//! Of Linux 6.1 (include/uapi/linux/io_uring.h): the command's memory is a buffer that the ring knows. In the field
//! that is called uring_cmd_flags in newer headers.
constexpr uint32_t FIXED_BUFFER = 1;

constexpr const char *NO_POLLED_COMMANDS =
    "this kernel does not poll for NVMe commands of io_uring; run Linux 6.1 or newer";

//! Of this kernel: a command with one has succeeded, or was refused before one has.
std::atomic<bool> fixed_buffers_work{false}, fixed_buffers_refused{false};

RingSupport &Support() {
    static RingSupport &support = *new RingSupport( // used until the process ends
        IORING_SETUP_SQE128 | IORING_SETUP_CQE32, {IORING_OP_URING_CMD},
        "this kernel's io_uring carries no NVMe commands (IORING_OP_URING_CMD); run Linux 5.19 or newer");
    return support;
}

//! Rings whose waiting threads poll the device.
RingSupport &PolledSupport() {
    static RingSupport &support =
        *new RingSupport(IORING_SETUP_SQE128 | IORING_SETUP_CQE32 | IORING_SETUP_IOPOLL,
                         {IORING_OP_URING_CMD}, NO_POLLED_COMMANDS);
    return support;
}

class IoUringCmdQueue final : public IoUringQueue {
  public:
    IoUringCmdQueue(const std::string &target_name, int fd, uint32_t namespace_id, uint32_t lba_size,
                    uint32_t depth, unsigned setup_flags)
        : IoUringQueue(target_name, depth, setup_flags, Carries::NVME_COMMANDS, "nvme_ioctl"), fd_(fd),
          namespace_id_(namespace_id), lba_size_(lba_size) {}

  private:
    void Prepare(io_uring_sqe &entry, const Command &command, int buffer) override {
        const nvme_passthru_cmd64 transfer = MakeNvmeTransfer(command, namespace_id_, lba_size_);
        auto *bytes = reinterpret_cast<char *>(&entry);
        std::memset(bytes, 0, BIG_ENTRY_BYTES); // the ring reuses entries, and liburing clears half of one
        entry.opcode = IORING_OP_URING_CMD;
        entry.fd = fd_;
        entry.off = NVME_URING_CMD_IO; // the field is called cmd_op in newer headers
        if (buffer != RingBuffers::NONE) {
            entry.rw_flags = FIXED_BUFFER;
            entry.buf_index = static_cast<uint16_t>(buffer);
        }
        std::memcpy(bytes + COMMAND_OFFSET, &transfer, sizeof(nvme_uring_cmd));
    }
    void Complete(Command &command, const io_uring_cqe &entry, bool registered) override {
        // Where a worker that was there before took only half of the address (LimitRingWorkers), the device has not heard
        // of it. This thread takes all of it.
        SetNvmeResult(command, entry.res == -EFAULT ? RunHere(command) : entry.res);
        if (registered && !fixed_buffers_work) {
            fixed_buffers_work = entry.res == 0;
            if (entry.res == -EINVAL) {
                fixed_buffers_refused = true;
                RingBuffers::NoteObstacle(
                    "this kernel's NVMe commands of io_uring take no registered memory; run "
                    "Linux 6.1 or newer");
                command.result = -EAGAIN; // once more, with the address
            }
        }
    }
    int RunHere(const Command &command) const {
        nvme_passthru_cmd64 transfer = MakeNvmeTransfer(command, namespace_id_, lba_size_);
        return RunThroughNode(fd_)(NvmeQueueKind::IO, transfer);
    }
    RingBuffers::Use BufferUse() const override {
        return fixed_buffers_refused ? RingBuffers::Use::NOTHING : RingBuffers::Use::ALL;
    }

    const int fd_;
    const uint32_t namespace_id_, lba_size_;
};

class IoUringCmdDevice final : public NvmeDevice {
  public:
    IoUringCmdDevice(const Target &target, const DeviceOptions &options, const std::string &reason)
        : NvmeDevice(target, options) {
        caps_.engine = "io_uring_cmd";
        caps_.engine_reason = reason;
        caps_.max_queue_depth = IoUringQueue::MAX_DEPTH;
        caps_.scarce_queues = true;
        caps_.polling_obstacle = options.polling ? PollingObstacle() : "nvme_queues does not say polling=on";
    }

    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse use) override {
        const bool polls = caps_.polling_obstacle.empty();
        return std::make_unique<IoUringCmdQueue>(name_, fd_.Get(), namespace_id_, caps_.lba_size, depth,
                                                 (polls ? PolledSupport() : Support()).SetupFlags(use));
    }

  private:
    //! Without queues to poll, the kernel would spin until the interrupt comes.
    std::string PollingObstacle() {
        if (!polling_queues_) {
            return "the NVMe driver has no polling queues for this device; load it with some (kernel "
                   "parameter "
                   "nvme.poll_queues=4, for instance)";
        }
        const std::string obstacle = PolledSupport().Obstacle();
        return !obstacle.empty() ? obstacle : TryPolling() ? "" : NO_POLLED_COMMANDS;
    }

    //! A kernel that has polled rings may still refuse this kind of command on them.
    bool TryPolling() {
        IoUringCmdQueue queue(name_, fd_.Get(), namespace_id_, caps_.lba_size, 1,
                              PolledSupport().SetupFlags(QueueUse::OWNED));
        AlignedBuffer buffer(caps_.lba_size);
        Command read;
        read.length = caps_.lba_size;
        read.data = buffer.Data();
        Command *done = nullptr;
        queue.Submit(read);
        queue.Reap(&done, 1, true);
        return read.result != -EOPNOTSUPP;
    }
};

} // namespace

std::string IoUringCmdObstacle() {
    return Support().Obstacle();
}

std::unique_ptr<Device> OpenIoUringCmdDevice(const Target &target, const DeviceOptions &options,
                                             const std::string &reason) {
    return std::make_unique<IoUringCmdDevice>(target, options, reason);
}

} // namespace rawduck
