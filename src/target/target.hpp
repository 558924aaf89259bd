//! A target is what a volume lies on: a regular file, a block device, an NVMe namespace, which the kernel or this
//! process drives, or process memory. This file turns a user's text into one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <sys/stat.h>

namespace rawduck {

//! MEMORY and SIMULATED targets live in this process: the operating system knows nothing of them, there is
//! nothing to lock and nothing to destroy.
//! A VFIO_FUNCTION is a namespace of an NVMe controller that the kernel has handed to processes (vfio-pci): it
//! has no node either, and whoever opens it has it alone.
enum class TargetKind { REGULAR_FILE, BLOCK_DEVICE, NVME_CHARACTER_DEVICE, VFIO_FUNCTION, MEMORY, SIMULATED };

//! By the name, "memory:..." or "simulated:...".
bool IsInProcess(const std::string &target_name);
//! By the kind.
bool IsInProcess(TargetKind kind);
//! By the name: it is no path, "memory:...", "simulated:..." or "vfio:...".
bool HasNoPath(const std::string &target_name);
//! Whether the operating system has a file or a device node for it, which can be locked and asked.
bool HasNode(TargetKind kind);

struct Stripe; // target/stripe.hpp

struct Target {
    TargetKind kind = TargetKind::REGULAR_FILE;
    //! As the user wrote it; what messages name.
    std::string name;
    //! What is opened: the canonical path (symbolic links
    //! resolved), or the name behind "memory:" or "simulated:", or the address of a PCI function.
    std::string path;
    //! Equal for two spellings of one target: device number, or file system and inode, or the name of an
    //! in-process target. That
    //! of an NVMe character device is its block device's, because both are the same namespace.
    std::string identity;
    //! Of the node at `path` itself, to notice that it was replaced.
    std::string node_identity;
    //! Of an NVMe character device: the namespace's block device.
    std::string block_path;
    //! Of a VFIO function: the namespace. 0: another kind.
    uint32_t namespace_id = 0;
    //! Of a file that somebody has opened for as long as this is used; `path` leads to that, and locks need not be
    //! looked for again. -1: nobody has.
    int open_descriptor = -1;
    //! Of a volume on several drives: all of them. What else is said here is then said of the first, but for the name.
    //! Null: this is all of it.
    std::shared_ptr<const Stripe> stripe;
    //! It was not read whether it is a member of a stripe.
    bool headers_unread = false;
};

//! "memory:<name>", "simulated:<name>", "vfio:0000:01:00.0n1" (PCI function and namespace; not looked for
//! here) or an absolute path to an existing file or device. Throws Error:
//! NOT_FOUND, INVALID (directory, FIFO, relative path, controller instead of namespace), PERMISSION.
Target ResolveTarget(const std::string &name);

//! See Target::identity.
std::string IdentityOf(const struct stat &status);

//! The block device behind an NVMe character device, for locks and safety checks; any other target is itself.
Target BlockDeviceOf(const Target &target);

} // namespace rawduck
