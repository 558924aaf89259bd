//! Who may use a target, between processes.
//!
//! What can go wrong, and what stands against it:
//!  - A process is killed while its requests are in flight. They are carried out all the same, on the data of
//!    whoever comes next. So the lock belongs to the open file description through which the I/O goes: the
//!    kernel holds that until the last request is done, and the lock with it. A process that finds such a
//!    lock and nobody alive who holds it waits.
//!  - A block device has several nodes (mknod, containers), and a lock belongs to one node. So a writer also
//!    holds the kernel's exclusive claim on the device (O_EXCL), through the same description. A second
//!    writer, a mount and mkfs are refused by the kernel; a reader looks whether somebody has the claim.
//!    Claims on a disk and on its partitions exclude each other.
//!  - NVMe passthrough goes through a character device, which nobody can claim. So both nodes of a namespace
//!    are locked, whichever carries the I/O.
//!  - A loop device and the file behind it are the same bytes. So the file is locked with the device.
//!  - Stock DuckDB locks with POSIX record locks. Locks of open file descriptions conflict with them in both
//!    directions, and are not lost when another descriptor of the file is closed.
//! Not seen: a reader through one node of a block device when a writer comes later through another one.
#pragma once

#include "device/file_descriptor.hpp"
#include "device/lock_holder.hpp"
#include "device/target.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace rawduck {

//! Not thread-safe, but I/O may go on through the descriptors while the mode changes. Targets in this process
//! always succeed, and have no descriptors.
class TargetLock {
  public:
    enum class Mode { SHARED, EXCLUSIVE };

    //! Waits for requests of a process that has ended: for a minute, or for `UNSEEN_PATIENCE` where not every
    //! process can be looked at. Throws Error LOCKED naming the holder's process id where the kernel tells
    //! it, or PERMISSION, NOT_FOUND, IO.
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

    static constexpr std::chrono::seconds PATIENCE{60}, UNSEEN_PATIENCE{5};

  private:
    struct Node {
        Target target;
        int fd = -1;
        Mode mode = Mode::SHARED;
        ByteRange range;      //!< of the lock
        bool required = true; //!< otherwise what cannot be locked exclusively is locked as well as it can be
    };

    void AddNode(const Target &target, bool required);
    void AddGenericDevice();
    void AddBackingFile();
    void Lock();
    void SetMode(Node &node, Mode mode);
    void Claim(Node &node);
    void Unclaim(Node &node);
    void LockDescriptor(int fd, Mode mode, ByteRange range = {}) const;
    FileDescriptor OpenClaim(const Node &node, int flags) const;
    void ProbeClaim(const Node &node) const;
    void RefuseUsedLoops(const Node &node) const;
    [[noreturn]] void ThrowLocked(const std::string &holder, const std::string &advice) const;
    void CloseAll();

    std::string name_;
    std::vector<Node> nodes_; //!< the first is the target's block device, or the file
    Mode mode_ = Mode::SHARED;
    Mode wanted_;              //!< what messages say
    uint64_t fork_generation_; //!< in a forked child the lock is the parent's and is left alone
};

} // namespace rawduck
