#include "target/system/locked_descriptors.hpp"

#include "common/error.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>
#include <vector>

namespace rawduck {
namespace {

//! Descriptors of all locks of this process. A forked child closes its copies at once: otherwise the lock of
//! a parent that has died would live on in a child that knows nothing of it.
struct LockRegistry {
    std::mutex mutex; //!< held during fork, too
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

} // namespace

void RegisterLocked(int fd) {
    static const int error = pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
    if (error != 0) {
        throw Error(ErrorCode::IO,
                    "pthread_atfork failed, so a lock could leak into a child: " + ErrnoText(error));
    }
    std::lock_guard<std::mutex> guard(Registry().mutex);
    Registry().descriptors.push_back(fd);
}

int TryLock(int fd, short type, ByteRange range) {
    struct flock lock = {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(range.start);
    lock.l_len = static_cast<off_t>(LockEnd(range) - range.start);
    int result;
    do {
        result = fcntl(fd, F_OFD_SETLK, &lock);
    } while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
}

int TryFlock(int fd, short type, ByteRange) {
    const int operation = type == F_UNLCK ? LOCK_UN : type == F_RDLCK ? LOCK_SH : LOCK_EX;
    int result;
    do {
        result = flock(fd, operation | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
}

void UnregisterLocked(int fd) {
    std::lock_guard<std::mutex> guard(Registry().mutex);
    auto &all = Registry().descriptors;
    all.erase(std::remove(all.begin(), all.end(), fd), all.end());
}

} // namespace rawduck
