#include "device/target_lock.hpp"

#include "common/error.hpp"
#include "device/fork_generation.hpp"
#include "device/kernel_use.hpp"
#include "device/lock_holder.hpp"
#include "device/nvme_node.hpp"
#include "device/open_target.hpp"
#include "device/sysfs.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace rawduck {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

//! Two readers that look for a writer's claim at the same moment find each other's; this long it may be that.
constexpr milliseconds PROBE_TIME{200};
constexpr milliseconds PAUSE{10};

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

//! 0 or errno. `type`: F_RDLCK, F_WRLCK or F_UNLCK.
int TryLock(int fd, short type, ByteRange range = {}) {
    struct flock lock = {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(range.start);
    lock.l_len = static_cast<off_t>(range.length);
    int result;
    do {
        result = fcntl(fd, F_OFD_SETLK, &lock);
    } while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
}

//! Releases and closes. Unlocking by name matters: a descriptor that was sent elsewhere or inherited through
//! vfork would keep the lock after close.
void Unregister(int fd) {
    {
        std::lock_guard<std::mutex> guard(Registry().mutex);
        auto &all = Registry().descriptors;
        all.erase(std::remove(all.begin(), all.end(), fd), all.end());
    }
    TryLock(fd, F_UNLCK);
    CloseKeepingPosixLocks(fd);
}

//! Puts another description behind a number that I/O goes on through. A fork in between finds the number
//! registered, as before.
void Replace(int fd, FileDescriptor fresh) {
    int result;
    do {
        result = dup3(fresh.Get(), fd, O_CLOEXEC);
    } while (result < 0 && (errno == EINTR || errno == EBUSY));
}

bool IsWritable(int fd) {
    return (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
}

//! How long to go on trying.
class Patience {
  public:
    //! Sleeps a little. False when it has lasted long enough.
    bool Wait(milliseconds most) {
        std::this_thread::sleep_for(PAUSE);
        return steady_clock::now() - begin_ < most;
    }

  private:
    const steady_clock::time_point begin_ = steady_clock::now();
};

milliseconds PatienceWith(const LockHolder &holder) {
    return holder.process != 0    ? milliseconds(0)
           : holder.everyone_seen ? milliseconds(TargetLock::PATIENCE)
                                  : milliseconds(TargetLock::UNSEEN_PATIENCE);
}

//! What to say of one whom nobody sees.
std::string HolderClause(const LockHolder &holder) {
    if (holder.process != 0) {
        return HolderName(holder) + (holder.process == getpid()
                                         ? " already holds a lock on it through another handle"
                                         : " holds a lock on it");
    }
    return holder.everyone_seen
               ? "requests of a process that has ended are still in flight to it, and writing or reading "
                 "before they are done could lose data"
               : "another process holds a lock on it, or requests of a process that has ended are still in "
                 "flight to it";
}

} // namespace

TargetLock::TargetLock(const Target &target, Mode mode)
    : name_(target.name), wanted_(mode), fork_generation_(ForkGeneration()) {
    if (IsInProcess(target.kind)) {
        mode_ = mode;
        return;
    }
    try {
        AddNode(BlockDeviceOf(target), true);
        AddGenericDevice();
        AddBackingFile();
        Lock();
    } catch (...) {
        CloseAll();
        throw;
    }
}

TargetLock::~TargetLock() {
    // In a forked child the descriptors are closed already, and their numbers may belong to something else.
    if (fork_generation_ == ForkGeneration()) {
        CloseAll();
    }
}

void TargetLock::CloseAll() {
    for (const Node &node : nodes_) {
        Unregister(node.fd);
    }
    nodes_.clear();
}

//! A node that is not required is left out when it cannot be opened.
void TargetLock::AddNode(const Target &target, bool required) {
    const int direct = target.kind == TargetKind::NVME_CHARACTER_DEVICE ? 0 : O_DIRECT;
    const int attempts[] = {O_RDWR | direct, O_RDWR, O_RDONLY | direct, O_RDONLY};
    int error_number = 0;
    FileDescriptor fd;
    for (const int flags : attempts) {
        const bool refused_writing = error_number == EACCES || error_number == EPERM || error_number == EROFS;
        const bool another_may_work = error_number == 0 || error_number == EINVAL || refused_writing;
        if (!fd.IsOpen() && another_may_work && !(refused_writing && (flags & O_ACCMODE) == O_RDWR)) {
            fd = TryOpenTarget(target, flags, error_number);
        }
    }
    if (!fd.IsOpen() && required) {
        ThrowOpenError(name_, "open " + target.path + " for locking", error_number);
    }
    if (fd.IsOpen()) {
        nodes_.reserve(nodes_.size() + 1);
        Register(fd.Get());
        nodes_.push_back({target, fd.Release(), Mode::SHARED, ByteRange(), required});
    }
}

//! Passthrough commands of a namespace go through it, ours or those of a process that was killed.
void TargetLock::AddGenericDevice() {
    struct stat status;
    if (nodes_[0].target.kind != TargetKind::BLOCK_DEVICE || fstat(nodes_[0].fd, &status) != 0) {
        return;
    }
    const std::string path = NvmeGenericPath(status.st_rdev);
    if (path.empty() || access(path.c_str(), F_OK) != 0) {
        return;
    }
    const Target generic = ResolveTarget(path);
    if (generic.identity == nodes_[0].target.identity) {
        AddNode(generic, false);
    }
}

//! Of a loop device or a partition of one: the bytes of the file that are its own, so that neighbours do not
//! exclude each other.
void TargetLock::AddBackingFile() {
    struct stat status;
    if (nodes_[0].target.kind != TargetKind::BLOCK_DEVICE || fstat(nodes_[0].fd, &status) != 0) {
        return;
    }
    const std::string directory = SysfsDirectory(status.st_rdev), disk = DiskDirectory(directory);
    const std::string path = ReadAttribute(disk + "/loop/backing_file");
    if (path.empty() || stat(path.c_str(), &status) != 0) {
        return; // no loop device, or its file is out of sight
    }
    uint64_t offset_bytes = 0, first_sector = 0, sectors = 0; // a disk has no first sector
    ReadNumber(disk + "/loop/offset", offset_bytes);
    ReadNumber(directory + "/start", first_sector);
    ReadNumber(directory + "/size", sectors);
    AddNode(ResolveTarget(path), false);
    if (nodes_.back().target.path == path) {
        nodes_.back().range = {offset_bytes + first_sector * SYSFS_SECTOR_BYTES,
                               sectors * SYSFS_SECTOR_BYTES};
    }
}

// Shared first: whoever reads or writes is found, whatever the mode, and a reader looks for a claim.
void TargetLock::Lock() {
    for (const Node &node : nodes_) {
        LockDescriptor(node.fd, Mode::SHARED, node.range);
    }
    if (wanted_ == Mode::EXCLUSIVE) {
        Change(Mode::EXCLUSIVE);
    } else if (nodes_[0].target.kind == TargetKind::BLOCK_DEVICE) {
        ProbeClaim(nodes_[0]);
    }
}

int TargetLock::DescriptorOf(const Target &node) const {
    for (const Node &mine : nodes_) {
        if (mine.target.node_identity == node.node_identity) {
            return mine.fd;
        }
    }
    return -1;
}

void TargetLock::Change(Mode mode) {
    if (fork_generation_ != ForkGeneration()) {
        throw Error(
            ErrorCode::UNSUPPORTED,
            name_ +
                ": it was locked before fork(); the lock stays with the parent, open it anew in the child");
    }
    wanted_ = mode;
    try {
        for (Node &node : nodes_) {
            SetMode(node, mode);
        }
    } catch (...) {
        for (Node &node : nodes_) {
            if (node.mode != mode_) {
                SetMode(node, mode_); // to SHARED, which cannot conflict
            }
        }
        throw;
    }
    mode_ = mode;
}

void TargetLock::SetMode(Node &node, Mode mode) {
    if (node.mode == mode) {
        return;
    }
    const bool claims = node.required && node.target.kind == TargetKind::BLOCK_DEVICE;
    if (mode == Mode::SHARED) {
        claims ? Unclaim(node) : LockDescriptor(node.fd, mode, node.range);
    } else if (IsWritable(node.fd)) {
        if (node.required && !claims) {
            RefuseUsedLoops(node);
        }
        claims ? Claim(node) : LockDescriptor(node.fd, mode, node.range);
    } else if (node.required) {
        throw Error(ErrorCode::PERMISSION,
                    name_ + ": cannot lock it for writing: it could only be opened for reading; "
                            "run as root or give your user write access, or attach it READ_ONLY");
    } else {
        return; // a shared lock is what can be had
    }
    node.mode = mode;
}

//! The kernel writes to the file for whoever has mounted a loop device on it.
void TargetLock::RefuseUsedLoops(const Node &node) const {
    for (const std::string &use : FindUsedLoops(node.target)) {
        ThrowLocked(use, "release it there first");
    }
}

// The lock moves to a description that has the claim. At every moment one of the two holds it, at least
// shared, so that nobody else becomes a writer meanwhile.
void TargetLock::Claim(Node &node) {
    FileDescriptor claimed = OpenClaim(node, fcntl(node.fd, F_GETFL) & (O_ACCMODE | O_DIRECT));
    LockDescriptor(claimed.Get(), Mode::SHARED);
    TryLock(node.fd, F_UNLCK);
    try {
        LockDescriptor(claimed.Get(), Mode::EXCLUSIVE);
    } catch (...) {
        TryLock(node.fd, F_RDLCK);
        TryLock(claimed.Get(), F_UNLCK);
        throw;
    }
    Replace(node.fd, std::move(claimed));
}

// Requests that are in flight keep the claim until they are done. Without a descriptor to spare it stays:
// only readers through other nodes would be refused for it.
void TargetLock::Unclaim(Node &node) {
    LockDescriptor(node.fd, Mode::SHARED);
    int error_number = 0;
    FileDescriptor unclaimed =
        TryOpenTarget(node.target, fcntl(node.fd, F_GETFL) & (O_ACCMODE | O_DIRECT), error_number);
    if (unclaimed.IsOpen() && TryLock(unclaimed.Get(), F_RDLCK) == 0) {
        Replace(node.fd, std::move(unclaimed));
    }
}

void TargetLock::LockDescriptor(int fd, Mode mode, ByteRange range) const {
    const bool shared = mode == Mode::SHARED;
    Patience patience;
    while (const int error_number = TryLock(fd, shared ? F_RDLCK : F_WRLCK, range)) {
        if (error_number != EAGAIN && error_number != EACCES) {
            throw Error(ErrorCode::IO, name_ + ": cannot lock it: " + ErrnoText(error_number));
        }
        const LockHolder holder = FindLockHolder(fd, shared, range);
        if (!patience.Wait(PatienceWith(holder))) {
            ThrowLocked(
                HolderClause(holder),
                holder.process == 0 && holder.everyone_seen
                    ? "try again; if that lasts, look into the kernel log (dmesg): the device may hang"
                : wanted_ == Mode::SHARED ? "close it there first"
                                          : "close it there, or attach it READ_ONLY in every process");
        }
    }
}

//! Opens a block device with O_EXCL, which the kernel grants once.
FileDescriptor TargetLock::OpenClaim(const Node &node, int flags) const {
    const bool probing = (flags & O_ACCMODE) == O_RDONLY;
    struct stat status;
    Patience patience;
    for (;;) {
        int error_number = 0;
        FileDescriptor claim = TryOpenTarget(node.target, flags | O_EXCL, error_number);
        if (claim.IsOpen() || (probing && error_number != EBUSY)) {
            return claim;
        }
        if (error_number != EBUSY || fstat(node.fd, &status) != 0) {
            ThrowOpenError(name_, "open for exclusive use", error_number);
        }
        if (patience.Wait(PROBE_TIME)) {
            continue;
        }
        for (const std::string &use : FindKernelUses(node.target, status, ClaimCheck::SKIP)) {
            ThrowLocked(use, "release it there first");
        }
        const LockHolder holder = FindDeviceWriter(status.st_rdev, node.fd);
        if (!patience.Wait(PatienceWith(holder))) {
            ThrowLocked(holder.process != 0
                            ? HolderName(holder) + " has the device open for writing"
                            : HolderClause(holder) + ", or the kernel holds it in exclusive use (a mount in "
                                                     "another namespace, RAID, a partition in use)",
                        "close it there first");
        }
    }
}

void TargetLock::ProbeClaim(const Node &node) const {
    OpenClaim(node, O_RDONLY);
}

void TargetLock::ThrowLocked(const std::string &holder, const std::string &advice) const {
    throw Error(ErrorCode::LOCKED, name_ + ": cannot lock it for " +
                                       (wanted_ == Mode::SHARED ? "reading" : "writing") + ": " + holder +
                                       "; " + advice);
}

} // namespace rawduck
