#include "target/lock/target_lock.hpp"

#include "common/error.hpp"
#include "common/process/fork_generation.hpp"
#include "target/nvme/nvme_node.hpp"
#include "target/occupants/kernel_use.hpp"
#include "target/open_target.hpp"
#include "target/system/lock_holder.hpp"
#include "target/system/locked_descriptors.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace rawduck {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

//! Two readers that look for a writer's claim at the same moment find each other's; this long it may be that.
constexpr milliseconds PROBE_TIME{200};
constexpr milliseconds POLL_INTERVAL{10};

//! Replaces the open file description of a descriptor that I/O continues to use. A fork in between finds the
//! descriptor registered, as before.
void ReplaceDescriptor(int fd, FileDescriptor fresh) {
    int result;
    do {
        result = dup3(fresh.Get(), fd, O_CLOEXEC);
    } while (result < 0 && (errno == EINTR || errno == EBUSY));
}

bool IsWritable(int fd) {
    return (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
}

//! Limits how long a conflicting lock is tried again.
class Timeout {
  public:
    //! Sleeps a little. False when it has lasted long enough.
    bool Wait(milliseconds most) {
        std::this_thread::sleep_for(POLL_INTERVAL);
        return steady_clock::now() - begin_ < most;
    }

  private:
    const steady_clock::time_point begin_ = steady_clock::now();
};

milliseconds TimeoutFor(const LockHolder &holder) {
    return holder.process != 0    ? milliseconds(0)
           : holder.everyone_seen ? milliseconds(TargetLock::HOLDER_TIMEOUT)
                                  : milliseconds(TargetLock::UNSEEN_HOLDER_TIMEOUT);
}

//! The clause of a message that names the holder, who may be unknown.
std::string HolderClause(const LockHolder &holder) {
    if (holder.process != 0) {
        return HolderName(holder) +
               (holder.process == getpid()
                    ? " already holds a lock on it, through another handle or under another "
                      "name (nvme_volumes() has the one in use)"
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
    if (target.stripe) {
        LockMembers(target, mode);
        return;
    }
    if (!HasNode(target.kind)) {
        mode_ = mode;
        return;
    }
    try {
        AddNode(BlockDeviceOf(target), Role::REQUIRED);
        AddGenericDevice();
        AddBackings();
        Lock();
        RequireName();
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

// Unlocking by name matters: a descriptor that was sent elsewhere or inherited through vfork would keep the
// lock after close.
void TargetLock::Release(const Node &node) {
    UnregisterLocked(node.fd);
    (IsInSysfs(node) ? TryFlock : TryLock)(node.fd, F_UNLCK, {});
    CloseKeepingPosixLocks(node.fd);
}

void TargetLock::CloseAll() {
    for (const Node &node : nodes_) {
        Release(node);
    }
    nodes_.clear();
}

void TargetLock::Add(Target target, FileDescriptor fd, Role role) {
    nodes_.reserve(nodes_.size() + 1);
    RegisterLocked(fd.Get());
    nodes_.push_back({std::move(target), fd.Release(), role, Mode::SHARED, ByteRange()});
}

void TargetLock::AddNode(const Target &target, Role role) {
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
    if (fd.IsOpen()) {
        Add(target, std::move(fd), role);
    } else if (role == Role::REQUIRED) {
        ThrowOpenError(name_, "open " + target.path + " for locking", error_number);
    }
}

bool TargetLock::IsInSysfs(const Node &node) {
    return node.role == Role::IN_SYSFS || node.role == Role::RELATIVE_IN_SYSFS;
}

// The disk's attribute shows a writer of the disk the readers of its partitions, that of each partition shows
// a writer there the readers of the disk.
void TargetLock::AddSysfs(dev_t number) {
    const std::string directory = SysfsDirectory(number), disk = DiskDirectory(directory);
    if (directory.empty()) {
        return; // there is no /sys
    }
    AddAttribute(directory, Role::IN_SYSFS);
    if (disk != directory) {
        AddAttribute(disk, Role::RELATIVE_IN_SYSFS);
    }
    for (const auto &name : ListDirectory(directory)) {
        if (IsPartition(directory + "/" + name)) {
            AddAttribute(directory + "/" + name, Role::RELATIVE_IN_SYSFS);
        }
    }
}

//! Left out where it cannot be opened.
void TargetLock::AddAttribute(const std::string &sysfs_directory, Role role) {
    Target attribute;
    attribute.path = sysfs_directory + "/dev";
    FileDescriptor fd(OpenAboveStreams(attribute.path.c_str(), O_RDONLY));
    if (fd.IsOpen()) {
        Add(std::move(attribute), std::move(fd), role);
    } else if (IsWantOfDescriptors(errno)) {
        ThrowOpenError(name_, "open " + attribute.path + " for locking", errno);
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
        AddNode(generic, Role::BEST_EFFORT);
    }
}

// Of a file, the bytes that are the target's own are locked, so that neighbours do not exclude each other.
void TargetLock::AddBackings() {
    base_ = nodes_[0].target.identity;
    struct stat status;
    if (nodes_[0].target.kind != TargetKind::BLOCK_DEVICE || fstat(nodes_[0].fd, &status) != 0) {
        return;
    }
    AddSysfs(status.st_rdev);
    auto below = BackingOf(status.st_rdev, nodes_[0].fd);
    for (dev_t number = status.st_rdev; below; below = BackingOf(number, -1)) {
        RequireNoPageCache(name_, number, *below);
        own_loops_.push_back(BaseName(DiskDirectory(SysfsDirectory(number))));
        base_ = below->identity;
        base_range_ = {below->range.start + base_range_.start,
                       base_range_.length == 0 ? below->range.length : base_range_.length};
        number = below->number;
        if (!below->path.empty()) {
            AddNode(ResolveTarget(below->path), Role::BEST_EFFORT);
        }
        if (number != 0) {
            AddSysfs(number);
        } else if (nodes_.back().target.identity == base_) {
            nodes_.back().range = base_range_;
        } else {
            unlocked_ = below;
        }
    }
}

// Shared first: whoever reads or writes is found, whatever the mode, and a reader looks for a claim.
void TargetLock::Lock() {
    for (const Node &node : nodes_) {
        LockDescriptor(node.fd, Mode::SHARED, node.range, IsInSysfs(node) ? TryFlock : TryLock);
    }
    if (wanted_ == Mode::EXCLUSIVE) {
        Change(Mode::EXCLUSIVE);
        return;
    }
    RefuseSharedUnlocked(Mode::SHARED);
    for (const Node &node : nodes_) {
        if (node.target.kind == TargetKind::BLOCK_DEVICE) {
            ProbeClaim(node);
        }
    }
}

// Whoever held the lock before may have removed or replaced the file: what is written to it now, nobody
// finds.
void TargetLock::RequireName() const {
    const Target &target = nodes_[0].target;
    struct stat status;
    if (target.kind == TargetKind::REGULAR_FILE &&
        (stat(target.path.c_str(), &status) != 0 || IdentityOf(status) != target.node_identity)) {
        throw Error(
            ErrorCode::NOT_FOUND,
            name_ + ": it was removed or replaced by another process while this one opened it; try again");
    }
}

int TargetLock::DescriptorOf(const Target &node) const {
    for (const Node &own : nodes_) {
        if (own.target.node_identity == node.node_identity) {
            return own.fd;
        }
    }
    for (const auto &member : members_) {
        if (const int fd = member->DescriptorOf(node); fd >= 0) {
            return fd;
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
    if (!members_.empty()) {
        ChangeMembers(mode);
        return;
    }
    try {
        SetModes(mode);
        if (mode == Mode::EXCLUSIVE) {
            RefuseSharedUnlocked(mode);
            RefuseUsedLoops();
        }
    } catch (...) {
        SetModes(mode_); // to SHARED, which cannot conflict
        throw;
    }
    mode_ = mode;
}

// The claim comes first and goes last: while we have it, nobody else wants what is in /sys exclusively.
void TargetLock::SetModes(Mode mode) {
    for (size_t i = 0; i < nodes_.size(); i++) {
        SetMode(nodes_[mode == Mode::EXCLUSIVE ? i : nodes_.size() - 1 - i], mode);
    }
}

void TargetLock::SetMode(Node &node, Mode mode) {
    if (node.mode == mode) {
        return;
    }
    const bool required = node.role == Role::REQUIRED;
    const bool claims = node.target.kind == TargetKind::BLOCK_DEVICE;
    if (IsInSysfs(node)) {
        SetSysfsMode(node, mode);
    } else if (mode == Mode::SHARED) {
        claims ? Unclaim(node) : LockDescriptor(node.fd, mode, node.range);
    } else if (IsWritable(node.fd)) {
        claims ? Claim(node) : LockDescriptor(node.fd, mode, node.range);
    } else if (required) {
        throw Error(ErrorCode::PERMISSION,
                    name_ + ": cannot lock it for writing: it could only be opened for reading; "
                            "run as root or give your user write access, or attach it READ_ONLY");
    } else {
        return; // a shared lock is what can be had
    }
    node.mode = mode;
}

// flock gives up the lock that it cannot make exclusive.
void TargetLock::SetSysfsMode(const Node &node, Mode mode) {
    if (node.role == Role::RELATIVE_IN_SYSFS) {
        return;
    }
    try {
        LockDescriptor(node.fd, mode, {}, TryFlock);
    } catch (...) {
        TryFlock(node.fd, F_RDLCK, {});
        throw;
    }
}

//! Those over bytes of the target.
std::vector<LoopDevice> TargetLock::OtherLoops() const {
    std::vector<LoopDevice> others;
    if (base_.empty()) {
        return others; // in this process, and no device lies over it
    }
    for (const LoopDevice &loop : LoopsOver(base_)) {
        const bool own = std::find(own_loops_.begin(), own_loops_.end(), loop.name) != own_loops_.end();
        if (!own && Overlap(loop.range, base_range_)) {
            others.push_back(loop);
        }
    }
    return others;
}

// The locks come first: whoever comes later finds them.
void TargetLock::RefuseUsedLoops() const {
    for (const LoopDevice &loop : OtherLoops()) {
        const std::string use = UseOfLoop(loop.name);
        if (!use.empty()) {
            ThrowLocked(use, "release it there first");
        }
    }
}

void TargetLock::RefuseSharedUnlocked(Mode mode) const {
    if (!unlocked_) {
        return;
    }
    const std::string below =
        "the file that it lies over cannot be locked (it was removed or replaced, is out "
        "of sight in this container, or may not be opened), ";
    for (const LoopDevice &loop : OtherLoops()) {
        if (loop.directly) { // otherwise the one in between is locked by both
            ThrowLocked(below + "so nobody can keep it apart from /dev/" + loop.name +
                            ", which lies over the same file",
                        "detach one of the two (losetup -d)");
        }
    }
    if (IsLocked(unlocked_->file_system, unlocked_->inode, base_range_, mode == Mode::SHARED)) {
        ThrowLocked(below + "and somebody holds a lock on that file", "close it there first");
    }
}

// The lock moves to a description that has the claim. At every moment one of the two holds it, at least
// shared, so that nobody else becomes a writer meanwhile.
void TargetLock::Claim(Node &node) {
    FileDescriptor claimed = OpenClaim(node, fcntl(node.fd, F_GETFL) & (O_ACCMODE | O_DIRECT));
    LockDescriptor(claimed.Get(), Mode::SHARED);
    TryLock(node.fd, F_UNLCK, {});
    try {
        LockDescriptor(claimed.Get(), Mode::EXCLUSIVE);
    } catch (...) {
        TryLock(node.fd, F_RDLCK, {});
        TryLock(claimed.Get(), F_UNLCK, {});
        throw;
    }
    ReplaceDescriptor(node.fd, std::move(claimed));
}

// Requests that are in flight keep the claim until they are done. Without a descriptor to spare it stays:
// only readers through other nodes would be refused for it.
void TargetLock::Unclaim(Node &node) {
    LockDescriptor(node.fd, Mode::SHARED);
    int error_number = 0;
    FileDescriptor unclaimed;
    try {
        unclaimed =
            TryOpenTarget(node.target, fcntl(node.fd, F_GETFL) & (O_ACCMODE | O_DIRECT), error_number);
    } catch (const Error &error) {
        if (error.Code() != ErrorCode::DESCRIPTORS) {
            throw;
        }
    }
    if (unclaimed.IsOpen() && TryLock(unclaimed.Get(), F_RDLCK, {}) == 0) {
        ReplaceDescriptor(node.fd, std::move(unclaimed));
    }
}

void TargetLock::LockDescriptor(int fd, Mode mode, ByteRange range) const {
    LockDescriptor(fd, mode, range, TryLock);
}

void TargetLock::LockDescriptor(int fd, Mode mode, ByteRange range, TryFunction try_lock) const {
    const bool shared = mode == Mode::SHARED;
    Timeout timeout;
    while (const int error_number = try_lock(fd, shared ? F_RDLCK : F_WRLCK, range)) {
        if (error_number != EAGAIN && error_number != EACCES) {
            throw Error(ErrorCode::IO, name_ + ": cannot lock it: " + ErrnoText(error_number));
        }
        const LockHolder holder = FindLockHolder(fd, shared, range);
        if (!timeout.Wait(TimeoutFor(holder))) {
            ThrowLocked(
                HolderClause(holder),
                holder.process == 0 && holder.everyone_seen
                    ? "try again; if that lasts, look into the kernel log (dmesg): the device may hang"
                : wanted_ == Mode::SHARED
                    ? "close it there first"
                    : "close it there, or do it in that process (what commands do, functions do there in "
                      "SQL: "
                      "nvme_grow(), nvme_copy(), ...); what is only read can be attached READ_ONLY in every "
                      "process");
        }
    }
}

//! Opens a block device with O_EXCL, which the kernel grants once.
FileDescriptor TargetLock::OpenClaim(const Node &node, int flags) const {
    const bool probing = (flags & O_ACCMODE) == O_RDONLY;
    struct stat status;
    Timeout timeout;
    for (;;) {
        int error_number = 0;
        FileDescriptor claim = TryOpenTarget(node.target, flags | O_EXCL, error_number);
        if (claim.IsOpen() || (probing && error_number != EBUSY)) {
            return claim;
        }
        if (error_number != EBUSY || fstat(node.fd, &status) != 0) {
            ThrowOpenError(name_, "open for exclusive use", error_number);
        }
        if (timeout.Wait(PROBE_TIME)) {
            continue;
        }
        for (const std::string &use : FindDirectUses(node.target, status)) {
            ThrowLocked(use, "release it there first");
        }
        const LockHolder holder = FindDeviceWriter(status.st_rdev, node.fd);
        if (!timeout.Wait(TimeoutFor(holder))) {
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
    // Who wants to write begins with a shared lock.
    throw Error(ErrorCode::LOCKED, name_ + ": cannot lock it" +
                                       (wanted_ == Mode::SHARED ? "" : " for writing") + ": " + holder +
                                       "; " + advice);
}

} // namespace rawduck
