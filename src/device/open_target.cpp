#include "device/open_target.hpp"

#include "common/error.hpp"
#include "device/posix_lock.hpp"
#include "device/sysfs.hpp"
#include "device/target_lock.hpp"

#include <cerrno>
#include <fcntl.h>

namespace rawduck {

void ThrowOpenError(const std::string &target_name, const std::string &operation, int error_number) {
    std::string message = target_name + ": cannot " + operation + ": " + ErrnoText(error_number);
    switch (error_number) {
    case ENOENT:
    case ENOTDIR:
        throw Error(
            ErrorCode::NOT_FOUND,
            message + "; check the path, and whether the device is plugged in (rawduck devices lists them)");
    case ENXIO:
    case ENODEV:
    case ENOMEDIUM:
        throw Error(ErrorCode::NOT_FOUND, message + "; there is no device or medium behind this path");
    case EACCES:
    case EPERM:
        throw Error(ErrorCode::PERMISSION,
                    message +
                        "; run as root, or give your user access (the group of the device, or a udev rule: "
                        "docs/devices.md)");
    case EROFS:
        throw Error(ErrorCode::PERMISSION, message + "; it can only be opened for reading");
    case EMFILE:
    case ENFILE:
        throw Error(ErrorCode::IO, message + "; raise the limit of open files (ulimit -n)");
    default:
        throw Error(ErrorCode::IO, message);
    }
}

std::string IdentityOf(const struct stat &status) {
    if (S_ISBLK(status.st_mode)) {
        return "block:" + DeviceNumberText(status.st_rdev);
    }
    if (S_ISCHR(status.st_mode)) {
        return "character:" + DeviceNumberText(status.st_rdev);
    }
    return "file:" + std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

int OpenAboveStreams(const char *path, int flags, mode_t mode) {
    const int fd = open(path, flags | O_CLOEXEC, mode);
    if (fd < 0 || fd > STDERR_FILENO) {
        return fd;
    }
    const int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int error_number = errno;
    close(fd);
    errno = error_number;
    return higher;
}

FileDescriptor TryOpenTarget(const Target &target, int flags, int &error_number) {
    CheckNoPosixLock(target.path);
    FileDescriptor fd(OpenAboveStreams(target.path.c_str(), flags),
                      FileDescriptor::Closing::KEEPS_POSIX_LOCKS);
    error_number = fd.IsOpen() ? 0 : errno;
    if (!fd.IsOpen()) {
        return fd;
    }
    struct stat status;
    if (fstat(fd.Get(), &status) != 0) {
        ThrowOpenError(target.name, "stat", errno);
    }
    // A path may be re-pointed between the safety checks and this open; writing to the new one would destroy
    // it.
    if (IdentityOf(status) != target.node_identity) {
        throw Error(ErrorCode::IO, target.name +
                                       ": it was replaced by another file or device since it was looked "
                                       "up (" +
                                       target.node_identity + " is now " + IdentityOf(status) +
                                       "); try again");
    }
    return fd;
}

FileDescriptor OpenTarget(const Target &target, int flags) {
    int error_number = 0;
    FileDescriptor fd = TryOpenTarget(target, flags, error_number);
    if (!fd.IsOpen()) {
        bool writes = (flags & O_ACCMODE) == O_RDWR;
        ThrowOpenError(target.name, writes ? "open for reading and writing" : "open for reading",
                       error_number);
    }
    return fd;
}

FileDescriptor OpenForIo(const Target &node, const TargetLock *lock, int flags, bool &read_only,
                         int &error_number) {
    const int locked = lock ? lock->DescriptorOf(node) : -1;
    if (locked >= 0) {
        error_number = 0;
        read_only = read_only || (fcntl(locked, F_GETFL) & O_ACCMODE) != O_RDWR;
        return FileDescriptor(locked, FileDescriptor::Closing::NEVER);
    }
    error_number = EACCES;
    FileDescriptor fd;
    if (!read_only) {
        fd = TryOpenTarget(node, O_RDWR | flags, error_number);
    }
    if (!fd.IsOpen() && (error_number == EACCES || error_number == EPERM || error_number == EROFS)) {
        fd = TryOpenTarget(node, O_RDONLY | flags, error_number);
        read_only = true;
    }
    return fd;
}

} // namespace rawduck
