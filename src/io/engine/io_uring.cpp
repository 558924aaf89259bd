#include "io/engine/io_uring.hpp"

#include "io/device/file_device.hpp"
#include "io/engine/io_uring_queue.hpp"
#include "io/engine/posix.hpp"

namespace rawduck {
namespace {

RingSupport &FileSupport() {
    static RingSupport &support = *new RingSupport( // used until the process ends
        0, {IORING_OP_READ, IORING_OP_WRITE},
        "this kernel's has no plain read and write; run Linux 5.6 or newer");
    return support;
}

class IoUringFileQueue final : public IoUringQueue {
  public:
    IoUringFileQueue(const std::string &target_name, int fd, TargetKind kind, uint32_t depth,
                     unsigned setup_flags)
        : IoUringQueue(target_name, depth, setup_flags, Carries::FILE_IO, "posix"), fd_(fd), kind_(kind) {}

  private:
    void Prepare(io_uring_sqe &entry, const Command &command, int buffer) override {
        if (command.opcode == Opcode::READ) {
            io_uring_prep_read(&entry, fd_, command.data, command.length, command.device_offset);
        } else {
            io_uring_prep_write(&entry, fd_, command.data, command.length, command.device_offset);
            entry.rw_flags = command.fua ? RWF_DSYNC : 0;
        }
        if (buffer != RingBuffers::NONE) {
            entry.opcode = command.opcode == Opcode::READ ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED;
            entry.buf_index = static_cast<uint16_t>(buffer);
        }
    }
    void Complete(Command &command, const io_uring_cqe &entry, bool) override { command.result = entry.res; }
    RingBuffers::Use BufferUse() const override { return RingBuffers::Use::SMALL_PAGES; }
    bool RunAlone(Command &command) override {
        if (command.fua && kind_ != TargetKind::REGULAR_FILE) {
            return false; // only a write through a ring avoids the flush of a block device
        }
        command.result = TransferNow(fd_, command);
        return true;
    }

    const int fd_;
    const TargetKind kind_;
};

class IoUringDevice final : public FileDevice {
  public:
    IoUringDevice(const Target &target, const DeviceOptions &options, const std::string &reason)
        : FileDevice(target, options) {
        caps_.engine = "io_uring";
        caps_.engine_reason = reason;
        caps_.max_queue_depth = IoUringQueue::MAX_DEPTH;
        caps_.scarce_queues = true;
    }

    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse use) override {
        return std::make_unique<IoUringFileQueue>(name_, fd_.Get(), kind_, depth,
                                                  FileSupport().SetupFlags(use));
    }
    std::unique_ptr<Queue> CreateSynchronousQueue() override { return MakePosixQueue(fd_.Get()); }
};

} // namespace

std::string IoUringObstacle() {
    return FileSupport().Obstacle();
}

std::unique_ptr<Device> OpenIoUringDevice(const Target &target, const DeviceOptions &options,
                                          const std::string &reason) {
    return std::make_unique<IoUringDevice>(target, options, reason);
}

} // namespace rawduck
