#include "target/system/open_error.hpp"

#include "common/error.hpp"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace rawduck {
namespace {

//! Of a path that leads through something that is no directory, this.
std::string Existing(std::string path) {
    while (access(path.c_str(), F_OK) != 0 && path.find('/') != std::string::npos) {
        path.erase(path.rfind('/'));
    }
    return path;
}

} // namespace

void ThrowOpenError(const std::string &target_name, const std::string &operation, int error_number) {
    std::string message = target_name + ": cannot " + operation + ": " + ErrnoText(error_number);
    switch (error_number) {
    case ENOENT:
        throw Error(
            ErrorCode::NOT_FOUND,
            message + "; check the path, and whether the device is plugged in (rawduck devices lists them)");
    case ENOTDIR:
        throw Error(ErrorCode::NOT_FOUND, message + "; " + Existing(target_name) +
                                              " is no directory. A volume is named without the files on it");
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
    default:
        throw Error(CodeOf(error_number, ErrorCode::IO), message);
    }
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

} // namespace rawduck
