#include "io/device/file_device.hpp"

#include "common/error.hpp"
#include "io/device/command_size.hpp"
#include "target/lock/open_for_io.hpp"
#include "target/open_target.hpp"
#include "target/system/sysfs.hpp"

#include <cerrno>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

namespace rawduck {
namespace {

bool CanDiscard(int fd) {
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return false;
    }
    uint64_t max_bytes = 0;
    std::string directory = SysfsDirectory(status.st_rdev);
    return !directory.empty() &&
           ReadNumber(DiskDirectory(directory) + "/queue/discard_max_bytes", max_bytes) && max_bytes > 0;
}

} // namespace

FileDevice::FileDevice(const Target &target, const DeviceOptions &options)
    : name_(target.name), kind_(target.kind) {
    const TargetInfo info = InspectTarget(target);
    disk_ = info.disk;
    caps_.read_only = options.read_only || info.read_only;
    Open(target, options);
    caps_.capacity_bytes = options.growing_file ? 0 : AlignDown(info.capacity_bytes, info.lba_size);
    caps_.lba_size = info.lba_size;
    caps_.memory_alignment = info.memory_alignment;
    caps_.max_transfer_bytes = CommandSizeLimit(name_, options, info.max_transfer_bytes, info.lba_size);
    caps_.volatile_write_cache = info.volatile_write_cache;
    caps_.fua = info.native_fua;
    caps_.deallocate = !caps_.read_only && (kind_ == TargetKind::REGULAR_FILE || CanDiscard(fd_.Get()));
    caps_.placement_obstacle =
        kind_ == TargetKind::REGULAR_FILE
            ? "only NVMe namespaces can have flexible data placement"
            : "this kernel's block layer passes no placement on; use an NVMe namespace "
              "and engine io_uring_cmd or nvme_ioctl";
    if (caps_.capacity_bytes == 0 && !options.growing_file) {
        throw Error(ErrorCode::INVALID, name_ + ": it has no room at all (" +
                                            std::to_string(info.capacity_bytes) +
                                            " bytes); give the file a size first");
    }
}

void FileDevice::Open(const Target &target, const DeviceOptions &options) {
    int error_number = 0;
    fd_ = OpenForIo(target, options.lock, O_DIRECT, caps_.read_only, error_number);
    // A lock is taken on a file that cannot be opened for direct I/O, too.
    if (fd_.IsOpen() && (fcntl(fd_.Get(), F_GETFL) & O_DIRECT) == 0) {
        error_number = EINVAL;
    }
    if (error_number == 0) {
        return;
    }
    if (error_number == EINVAL) {
        throw Error(
            ErrorCode::UNSUPPORTED,
            name_ + ": its file system does not support direct I/O (O_DIRECT: " + ErrnoText(error_number) +
                "); place the volume on ext4, XFS or btrfs, or on a block device");
    }
    ThrowOpenError(name_, "open for direct I/O", error_number);
}

uint64_t FileDevice::CurrentCapacity() const {
    if (caps_.capacity_bytes == 0) {
        return 0; // it grows with what is written
    }
    uint64_t bytes = 0;
    struct stat status;
    const bool is_device = kind_ == TargetKind::BLOCK_DEVICE;
    if ((is_device ? ioctl(fd_.Get(), BLKGETSIZE64, &bytes) : fstat(fd_.Get(), &status)) != 0) {
        throw Error(ErrorCode::IO, name_ + ": cannot ask for its size: " + ErrnoText(errno));
    }
    return AlignDown(is_device ? bytes : static_cast<uint64_t>(status.st_size), caps_.lba_size);
}

int FileDevice::SyncData() {
    return fdatasync(fd_.Get()) == 0 ? 0 : errno;
}

void FileDevice::Flush() {
    if (const int error_number = SyncData()) {
        throw Error(ErrorCode::IO, name_ + ": flush failed, so earlier writes may be lost: " +
                                       ErrnoText(error_number) + "; look into the kernel log (dmesg)");
    }
}

bool FileDevice::Deallocate(uint64_t device_offset, uint64_t length) {
    if (!caps_.deallocate) {
        return false;
    }
    int result;
    if (kind_ == TargetKind::BLOCK_DEVICE) {
        uint64_t range[2] = {device_offset, length};
        result = ioctl(fd_.Get(), BLKDISCARD, range);
    } else {
        result = fallocate(fd_.Get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           static_cast<off_t>(device_offset), static_cast<off_t>(length));
    }
    if (result == 0) {
        return true;
    }
    // A hint that is not taken leaves the contents as they are, which is always correct.
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR || errno == EBUSY) {
        return false;
    }
    throw Error(ErrorCode::IO, name_ + ": deallocate of " + std::to_string(length) +
                                   " bytes at byte offset " + std::to_string(device_offset) +
                                   " failed: " + ErrnoText(errno) + "; look into the kernel log (dmesg)");
}

} // namespace rawduck
