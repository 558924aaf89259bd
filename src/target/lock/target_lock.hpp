//! Who may use a target, between processes.
//!
//! What can go wrong, and what prevents it:
//!  - A process is killed while its requests are in flight. They are carried out all the same, on the data of
//!    whoever comes next. So the lock belongs to the open file description through which the I/O goes: the
//!    kernel holds that until the last request is done, and the lock with it. A process that finds such a
//!    lock and nobody alive who holds it waits.
//!  - A block device has several nodes (mknod, containers), and a lock belongs to one node. So a writer also
//!    holds the kernel's exclusive claim on the device (O_EXCL), through the same description. A second
//!    writer, a mount and mkfs are refused by the kernel; a reader looks whether somebody has the claim.
//!    Claims on a disk and on its partitions exclude each other.
//!  - A writer's claim does not see the readers that were there before it. So all of them also lock the
//!    device's attribute "dev" in /sys (flock), which is one inode for all nodes. A reader holds those of the
//!    disk and of its partitions, too.
//!  - NVMe passthrough goes through a character device, which nobody can claim. So both nodes of a namespace
//!    are locked, whichever carries the I/O.
//!  - A loop device and the file or device behind it are the same bytes. So that is locked with the loop
//!    device, and what lies behind that in turn. A file that no name leads to cannot be locked: then the loop
//!    device is refused if another one lies over the same bytes, or somebody has them locked.
//!  - The kernel writes for whoever has mounted a loop device over the target, or over what lies behind it. A
//!    writer looks for all of these.
//!  - Stock DuckDB locks with POSIX record locks. Locks of open file descriptions conflict with them in both
//!    directions, and are not lost when another descriptor of the file is closed.
//!  - A volume on several drives is all of them. Each is locked by itself, in the order of their identities, whichever was
//!    named; nobody waits for a live holder, so that two who lock overlapping sets cannot wait for each other.
//!  - A VFIO function has no node. Its group's can be opened once: the engine does, and nobody else reads either.
//! Not seen: a reader through one node of a block device when a writer comes later through another one, and
//! the two have a /sys each (containers with a network of their own). Before such a reader writes, it looks
//! whether it is outdated (VolumeState::BecomeWriter).
#pragma once

#include "target/occupants/loop_device.hpp"
#include "target/system/file_descriptor.hpp"
#include "target/system/lock_holder.hpp"
#include "target/target.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rawduck {

//! Not thread-safe, but I/O may go on through the descriptors while the mode changes. Targets without a
//! node always succeed, and have no descriptors.
class TargetLock {
  public:
    enum class Mode { SHARED, EXCLUSIVE };

    //! Waits for requests of a process that has ended: for a minute, or for `UNSEEN_HOLDER_TIMEOUT` where not
    //! every process can be looked at. Throws Error LOCKED naming the holder's process id where the kernel
    //! tells it, or PERMISSION, NOT_FOUND, IO.
    TargetLock(const Target &target, Mode mode);
    ~TargetLock();
    TargetLock(const TargetLock &) = delete;
    TargetLock &operator=(const TargetLock &) = delete;

    //! On conflict throws Error LOCKED and the old mode stays.
    void Change(Mode mode);
    Mode Current() const { return mode_; }

    //! The descriptor for I/O on this node of the target: for reading and writing if permitted, otherwise for
    //! reading, and with O_DIRECT unless the file system refuses that. It keeps its number in every mode. -1:
    //! it is not open here, the caller has to open the node by itself.
    int DescriptorOf(const Target &node) const;

    static constexpr std::chrono::seconds HOLDER_TIMEOUT{60}, UNSEEN_HOLDER_TIMEOUT{5};

  private:
    enum class Role {
        REQUIRED,
        BEST_EFFORT,      //!< left out when it cannot be opened, shared when it cannot be written
        IN_SYSFS,         //!< the target's attribute "dev"
        RELATIVE_IN_SYSFS //!< that of its disk or of a partition: shared in both modes
    };
    struct Node {
        Target target;
        int fd = -1;
        Role role = Role::REQUIRED;
        Mode mode = Mode::SHARED;
        ByteRange range; //!< of the lock
    };

    static bool IsInSysfs(const Node &node);
    void Add(Target target, FileDescriptor fd, Role role);
    void AddNode(const Target &target, Role role);
    void AddSysfs(dev_t number);
    void AddAttribute(const std::string &sysfs_directory, Role role);
    void AddGenericDevice();
    void AddBackings();
    void Lock();
    void RequireName() const;
    void SetModes(Mode mode);
    void SetMode(Node &node, Mode mode);
    void SetSysfsMode(const Node &node, Mode mode);
    void Claim(Node &node);
    void Unclaim(Node &node);
    using TryFunction = int (*)(int fd, short type, ByteRange range);
    void LockDescriptor(int fd, Mode mode, ByteRange range = {}) const;
    void LockDescriptor(int fd, Mode mode, ByteRange range, TryFunction try_lock) const;
    FileDescriptor OpenClaim(const Node &node, int flags) const;
    void ProbeClaim(const Node &node) const;
    std::vector<LoopDevice> OtherLoops() const;
    void RefuseUsedLoops() const;
    void RefuseSharedUnlocked(Mode mode) const;
    [[noreturn]] void ThrowLocked(const std::string &holder, const std::string &advice) const;
    static void Release(const Node &node);
    void CloseAll();

    void LockMembers(const Target &target, Mode mode);
    void ChangeMembers(Mode mode);

    std::string name_;
    std::vector<std::unique_ptr<TargetLock>>
        members_;                        //!< of a stripe, which has nothing else of what follows
    std::vector<Node> nodes_;            //!< the first is the target's block device, or the file
    std::string base_;                   //!< identity of the lowest file or device that is known of
    ByteRange base_range_;               //!< where the target lies in it
    std::optional<Backing> unlocked_;    //!< that one, when it is a file that cannot be locked
    std::vector<std::string> own_loops_; //!< that the target consists of: "loop0"
    Mode mode_ = Mode::SHARED;
    Mode wanted_;              //!< what messages say
    uint64_t fork_generation_; //!< in a forked child the lock is the parent's and is left alone
};

} // namespace rawduck
