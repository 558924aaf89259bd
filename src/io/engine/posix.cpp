#include "io/engine/posix.hpp"

#include "io/device/file_device.hpp"
#include "io/device/synchronous_queue.hpp"

#include <cerrno>
#include <sys/uio.h>
#include <unistd.h>

namespace rawduck {
namespace {

class PosixDevice final : public FileDevice {
  public:
    PosixDevice(const Target &target, const DeviceOptions &options, const std::string &reason)
        : FileDevice(target, options) {
        caps_.engine = "posix";
        caps_.engine_reason = reason;
        caps_.max_queue_depth = 1; // a second command could only wait for the first
        caps_.fua = caps_.fua && target.kind == TargetKind::REGULAR_FILE;
    }

    std::unique_ptr<Queue> CreateQueue(uint32_t, QueueUse) override { return MakePosixQueue(fd_.Get()); }
};

ssize_t Write(int fd, const Command &command) {
    const auto offset = static_cast<off_t>(command.device_offset);
    const iovec memory = {command.data, command.length};
    const ssize_t written = pwritev2(fd, &memory, 1, offset, command.fua ? RWF_DSYNC : 0);
    if (written >= 0 || errno != EOPNOTSUPP || !command.fua) {
        return written;
    }
    // There is no such call: QEMU's emulation of programs has none.
    const ssize_t plainly = pwrite(fd, command.data, command.length, offset);
    return plainly >= 0 && fdatasync(fd) != 0 ? -1 : plainly;
}

} // namespace

int64_t TransferNow(int fd, const Command &command) {
    const ssize_t result = command.opcode == Opcode::READ ? pread(fd, command.data, command.length,
                                                                  static_cast<off_t>(command.device_offset))
                                                          : Write(fd, command);
    return result < 0 ? -errno : result;
}

std::unique_ptr<Queue> MakePosixQueue(int fd) {
    return std::make_unique<SynchronousQueue>(
        1, [fd](const Command &command) { return TransferNow(fd, command); });
}

std::unique_ptr<Device> OpenPosixDevice(const Target &target, const DeviceOptions &options,
                                        const std::string &reason) {
    return std::make_unique<PosixDevice>(target, options, reason);
}

} // namespace rawduck
