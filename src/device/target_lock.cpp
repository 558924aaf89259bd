#include "common/error.hpp"
#include "device/fork_generation.hpp"
#include "device/lock_holder.hpp"
#include "device/open_target.hpp"
#include "device/target.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <unistd.h>

namespace rawduck {
namespace {

//! Descriptors of all locks of this process. A forked child closes its copies at once: otherwise the lock of
//! a parent that has died would live on in a child that knows nothing of it.
struct LockRegistry {
    std::mutex mutex;
    std::vector<int> descriptors;
};

LockRegistry &Registry() {
    // Never destroyed: fork handlers may run after static destructors.
    static auto *registry = new LockRegistry;
    return *registry;
}

void BeforeFork() {
    Registry().mutex.lock();
}
void AfterForkInParent() {
    Registry().mutex.unlock();
}
void AfterForkInChild() {
    for (int fd : Registry().descriptors) {
        close(fd);
    }
    Registry().descriptors.clear();
    Registry().mutex.unlock();
}

void Register(int fd) {
    static const int error = pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
    if (error != 0) {
        throw Error(ErrorCode::IO,
                    "pthread_atfork failed, so a lock could leak into a child: " + ErrnoText(error));
    }
    std::lock_guard<std::mutex> guard(Registry().mutex);
    Registry().descriptors.push_back(fd);
}

//! Releases and closes. Unlocking by name matters: a descriptor that was sent elsewhere or inherited through
//! vfork would keep the lock after close.
void Unregister(int fd) {
    std::lock_guard<std::mutex> guard(Registry().mutex);
    auto &all = Registry().descriptors;
    all.erase(std::remove(all.begin(), all.end(), fd), all.end());
    struct flock unlock = {};
    unlock.l_type = F_UNLCK;
    unlock.l_whence = SEEK_SET;
    fcntl(fd, F_OFD_SETLK, &unlock);
    close(fd);
}

//! 0 or errno.
int TryLock(int fd, TargetLock::Mode mode) {
    struct flock lock = {};
    lock.l_type = mode == TargetLock::Mode::SHARED ? F_RDLCK : F_WRLCK;
    lock.l_whence = SEEK_SET; // from byte 0, length 0: the whole file
    int result;
    do {
        result = fcntl(fd, F_OFD_SETLK, &lock);
    } while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
}

[[noreturn]] void ThrowLockError(const std::string &name, int fd, TargetLock::Mode mode, int error_number) {
    const bool shared = mode == TargetLock::Mode::SHARED;
    if (error_number == EAGAIN || error_number == EACCES) {
        throw Error(ErrorCode::LOCKED,
                    name + ": cannot lock it for " + (shared ? "reading" : "writing") + ": " +
                        DescribeLockHolder(fd, shared) +
                        (shared ? "; close it there first"
                                : "; close it there, or attach it READ_ONLY in every process"));
    }
    if (error_number == EBADF && !shared) {
        throw Error(ErrorCode::PERMISSION,
                    name + ": cannot lock it for writing: it could only be opened for reading; "
                           "run as root or give your user write access, or attach it READ_ONLY");
    }
    throw Error(ErrorCode::IO, name + ": cannot lock it: " + ErrnoText(error_number));
}

} // namespace

TargetLock::TargetLock(const Target &target, Mode mode)
    : name_(target.name), mode_(mode), fork_generation_(ForkGeneration()) {
    if (IsInProcess(target.kind)) {
        return;
    }
    // Both nodes of an NVMe namespace must conflict, so both lock the block device.
    const Target lockable = BlockDeviceOf(target);
    int error_number = 0;
    FileDescriptor fd = TryOpenTarget(lockable, O_RDWR | O_NONBLOCK, error_number);
    if (!fd.IsOpen()) {
        if (error_number != EACCES && error_number != EPERM && error_number != EROFS) {
            ThrowOpenError(name_, "open " + lockable.path + " for locking", error_number);
        }
        fd = OpenTarget(lockable, O_RDONLY | O_NONBLOCK);
    }
    error_number = TryLock(fd.Get(), mode);
    if (error_number != 0) {
        ThrowLockError(name_, fd.Get(), mode, error_number);
    }
    Register(fd.Get());
    fd_ = fd.Release();
}

TargetLock::~TargetLock() {
    // In a forked child the descriptor is closed already, and its number may belong to something else.
    if (fd_ >= 0 && fork_generation_ == ForkGeneration()) {
        Unregister(fd_);
    }
}

void TargetLock::Change(Mode mode) {
    if (fork_generation_ != ForkGeneration()) {
        throw Error(
            ErrorCode::UNSUPPORTED,
            name_ +
                ": it was locked before fork(); the lock stays with the parent, open it anew in the child");
    }
    if (fd_ >= 0) {
        int error_number = TryLock(fd_, mode);
        if (error_number != 0) {
            ThrowLockError(name_, fd_, mode, error_number);
        }
    }
    mode_ = mode;
}

} // namespace rawduck
