#include "target/system/posix_lock.hpp"

#include "common/error.hpp"
#include "target/system/open_error.hpp"
#include "target/system/own_posix_locks.hpp"
#include "target/system/sysfs.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <mutex>
#include <new>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <vector>

namespace rawduck {
namespace {

//! Descriptors that could not be closed yet. Never destroyed: files are closed when the process ends, too.
struct KeptDescriptors {
    std::mutex mutex; //!< held while descriptors are closed, and during fork
    std::vector<int> descriptors;
};

//! With its handlers for fork. The mutex is held over system calls, and a child that is made meanwhile would
//! wait for it for ever. The child has no POSIX locks to lose: it closes its copies.
KeptDescriptors *MakeKept();

KeptDescriptors &Kept() {
    static KeptDescriptors *kept = MakeKept();
    return *kept;
}

KeptDescriptors *MakeKept() {
    // Where the system has no memory for the handlers, a fork amid a close may hang; nothing is lost.
    pthread_atfork([] { Kept().mutex.lock(); }, [] { Kept().mutex.unlock(); },
                   [] {
                       for (const int fd : Kept().descriptors) {
                           close(fd);
                       }
                       Kept().descriptors.clear();
                       Kept().mutex.unlock();
                   });
    alignas(KeptDescriptors) static unsigned char memory[sizeof(KeptDescriptors)]; // closing needs no other
    return new (memory) KeptDescriptors;
}

//! One of the locks that stand in the way of this one, of whatever range.
bool GetConflict(int fd, short type, struct flock &lock) {
    lock = {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    return fcntl(fd, F_OFD_GETLK, &lock) == 0;
}

//! Beside a lock for writing there is none of stock DuckDB, which locks all of a file. Where it is an open file description's,
//! as that of a volume that is written to here, the two others, which take long, need not be asked for each descriptor.
bool HasDescriptionToWrite(int fd) {
    struct flock lock;
    return GetConflict(fd, F_RDLCK, lock) && lock.l_type == F_WRLCK && lock.l_pid == -1;
}

Held AskKernel(int fd) {
    struct flock lock;
    if (!GetConflict(fd, F_WRLCK, lock)) { // with that, every other lock on the file
        return Held::UNKNOWN;
    }
    if (lock.l_type == F_UNLCK) {
        return Held::NO;
    }
    return lock.l_pid == getpid() ? Held::YES : HasDescriptionToWrite(fd) ? Held::NO : Held::UNKNOWN;
}

//! Of this thread's descriptors: the first thread of the process may have ended.
const char *const DESCRIPTORS_FOLDER = "/proc/thread-self/fdinfo";

//! Empty where it cannot be had.
std::vector<std::string> ListDescriptors() {
    try {
        return ListDirectory(DESCRIPTORS_FOLDER);
    } catch (const Error &) {
        return {}; // no descriptor to spare
    }
}

//! Whether a descriptor is one of the file. Asks no server of a file system, which may hang, and needs no memory of the
//! system.
Held IsOf(const std::string &descriptor, const struct stat &status) {
    const int fd = std::atoi(descriptor.c_str());
    struct statx other;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &other) == 0) {
        const bool same = makedev(other.stx_dev_major, other.stx_dev_minor) == status.st_dev &&
                          other.stx_ino == status.st_ino;
        return same ? Held::YES : Held::NO;
    }
    struct stat asked; // a sandbox may know the older call alone
    if (errno != EBADF && fstat(fd, &asked) == 0) {
        return asked.st_dev == status.st_dev && asked.st_ino == status.st_ino ? Held::YES : Held::NO;
    }
    return errno == EBADF ? Held::NO : Held::UNKNOWN; // closed meanwhile
}

//! Of a descriptor: whether a lock that this process has taken through it is shown.
Held ShowsLock(const std::string &descriptor) {
    std::ifstream stream(std::string(DESCRIPTORS_FOLDER) + "/" + descriptor);
    if (!stream) {
        return Held::UNKNOWN; // no descriptor to spare
    }
    // "lock:	1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF"
    for (std::string line; std::getline(stream, line);) {
        if (line.compare(0, 5, "lock:") == 0 && line.find(" POSIX ") != std::string::npos) {
            return Held::YES;
        }
    }
    return stream.bad() ? Held::UNKNOWN : Held::NO;
}

//! Says NO where no other descriptor than `fd` is one of the file (-1: none at all): a lock is taken through one. Else only where
//! the locks of descriptors are shown, as that of the witness is.
Held AskDescriptors(const std::vector<std::string> &descriptors, int fd, const struct stat &status) {
    Held held = descriptors.empty() ? Held::UNKNOWN : Held::NO;
    bool has_other = false;
    for (const std::string &descriptor : descriptors) {
        const Held is_of_file = IsOf(descriptor, status);
        const Held shown = is_of_file == Held::YES ? ShowsLock(descriptor) : is_of_file;
        if (shown == Held::YES) {
            return Held::YES;
        }
        has_other = has_other || (is_of_file == Held::YES && descriptor != std::to_string(fd));
        held = shown == Held::UNKNOWN ? Held::UNKNOWN : held;
    }
    return has_other && ShowsLock(LockWitness()) != Held::YES ? Held::UNKNOWN : held;
}

//! Asks who takes less time first, then the other one.
template <class ASK_LIST> Held AskLists(int fd, const struct stat &status, const ASK_LIST &ask_lock_list) {
    // So many take less than the first look at the list of locks after a pause, for which the kernel stops all who lock.
    constexpr size_t FEW = 256;
    const std::vector<std::string> descriptors = ListDescriptors();
    const bool are_few = !descriptors.empty() && descriptors.size() <= FEW;
    const Held held = are_few ? AskDescriptors(descriptors, fd, status) : ask_lock_list();
    if (held != Held::UNKNOWN) {
        return held;
    }
    return are_few ? ask_lock_list() : AskDescriptors(descriptors, fd, status);
}

bool SetGuard(int fd, short type) noexcept {
    struct flock lock = {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

void Keep(int fd, std::vector<int> &kept) noexcept {
    try {
        kept.push_back(fd);
    } catch (const std::bad_alloc &) {
        // It stays open until the process ends, which keeps the lock.
    }
}

//! Throws std::bad_alloc.
Held AskAll(int fd) {
    Held held = AskKernel(fd);
    struct stat status;
    if (held == Held::UNKNOWN && fstat(fd, &status) == 0) {
        held = AskLists(fd, status, [&] { return AskLockList(fd, status); });
    }
    return held;
}

bool MustStayOpen(int fd) noexcept {
    try {
        return AskAll(fd) != Held::NO;
    } catch (const std::exception &) {
        return true; // without memory nobody can tell
    }
}

void ThrowIfHeld(const std::string &path, Held held) {
    if (held == Held::YES) {
        throw Error(ErrorCode::LOCKED,
                    path + ": this process has it open through DuckDB's own file system, whose lock "
                           "would be lost if it were opened a second time; DETACH it there first");
    }
}

constexpr int GUARD_ATTEMPTS = 100;

//! Another descriptor of a regular file, for a lock that stands in the way of one for writing: stock DuckDB gets none
//! between the question and the close. -1: none could be had. The mutex of those that are kept is held until it is
//! closed, so no child made by fork() has a copy of it.
int OpenGuard(int fd) noexcept {
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        return -1;
    }
    std::array<char, 32> path{};
    std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
    return open(path.data(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

//! Returns whether the descriptor was closed. Adds to `kept` what must stay open besides it.
bool TryClose(int fd, std::vector<int> &kept) noexcept {
    if (MustStayOpen(fd)) {
        return false;
    }
    const int guard = OpenGuard(fd);
    if (guard < 0) {
        close(fd);
        return true;
    }
    // Whoever has a lock for writing keeps the guard from its own: stock DuckDB, which may give it back and take it
    // again meanwhile; or somebody else, who keeps stock DuckDB from it, too.
    bool is_guarded = false;
    for (int i = 0; i < GUARD_ATTEMPTS && !is_guarded; i++) {
        is_guarded = SetGuard(guard, F_RDLCK);
        if (MustStayOpen(guard)) {
            SetGuard(guard, F_UNLCK);
            Keep(guard, kept);
            return false;
        }
    }
    close(fd);
    close(guard);
    return true;
}

} // namespace

void CheckNoPosixLock(const std::string &path) {
    struct stat status;
    if (stat(path.c_str(), &status) != 0) {
        return;
    }
    Held held = AskLists(-1, status, [&] { return AskLockList(path, status); });
    if (held == Held::UNKNOWN) {
        const int fd = OpenAboveStreams(path.c_str(), O_RDONLY | O_NONBLOCK);
        if (fd >= 0) {
            held = AskKernel(fd);
            CloseKeepingPosixLocks(fd);
        } else if (IsWantOfDescriptors(errno)) {
            ThrowOpenError(path, "find out whether this process has locked it", errno);
        }
    }
    ThrowIfHeld(path, held);
}

void CheckNoPosixLock(const std::string &path, int fd) {
    ThrowIfHeld(path, AskAll(fd));
}

bool AnyKeptForPosixLocks() {
    KeptDescriptors &kept = Kept();
    std::lock_guard<std::mutex> guard(kept.mutex);
    return !kept.descriptors.empty();
}

void CloseKeepingPosixLocks(int fd) noexcept {
    const int error_number = errno;
    KeptDescriptors &kept = Kept();
    std::lock_guard<std::mutex> guard(kept.mutex);
    auto &all = kept.descriptors;
    for (size_t i = all.size(); i-- > 0;) {
        if (TryClose(all[i], all)) {
            all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
    if (!TryClose(fd, all)) {
        Keep(fd, all);
    }
    errno = error_number;
}

} // namespace rawduck
