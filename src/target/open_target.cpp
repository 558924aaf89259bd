#include "target/open_target.hpp"

#include "common/error.hpp"
#include "target/system/posix_lock.hpp"

#include <cerrno>
#include <fcntl.h>

namespace rawduck {

FileDescriptor TryOpenTarget(const Target &target, int flags, int &error_number) {
    if (target.open_descriptor < 0) {
        CheckNoPosixLock(target.path);
    }
    FileDescriptor fd(OpenAboveStreams(target.path.c_str(), flags),
                      FileDescriptor::Closing::KEEPS_POSIX_LOCKS);
    error_number = fd.IsOpen() ? 0 : errno;
    if (IsWantOfDescriptors(error_number)) {
        ThrowOpenError(target.name, "open " + target.path, error_number);
    }
    if (!fd.IsOpen()) {
        return fd;
    }
    struct stat status;
    if (fstat(fd.Get(), &status) != 0) {
        ThrowOpenError(target.name, "stat", errno);
    }
    // A path may be re-pointed between the safety checks and
    // this open; writing to the new one would destroy it.
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

} // namespace rawduck
