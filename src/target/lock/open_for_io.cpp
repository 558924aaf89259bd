#include "target/lock/open_for_io.hpp"

#include "target/open_target.hpp"

#include <cerrno>
#include <fcntl.h>

namespace rawduck {

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
