//! A target is what a volume lies on: a regular file, a block device, an NVMe namespace, or process memory.
//! This file turns a user's text into one.
#pragma once

#include <cstdint>
#include <string>
#include <sys/stat.h>

namespace rawduck {

//! MEMORY and SIMULATED targets live in this process: the operating system knows nothing of them, there is
//! nothing to lock and nothing to destroy.
enum class TargetKind { REGULAR_FILE, BLOCK_DEVICE, NVME_CHARACTER_DEVICE, MEMORY, SIMULATED };

//! By the name, "memory:..." or "simulated:...".
bool IsInProcess(const std::string &target_name);
//! By the kind.
bool IsInProcess(TargetKind kind);

struct Target {
    TargetKind kind = TargetKind::REGULAR_FILE;
    //! As the user wrote it; what messages name.
    std::string name;
    //! What is opened: the canonical path (symbolic links
    //! resolved), or the name behind "memory:" or "simulated:".
    std::string path;
    //! Equal for two spellings of one target: device number, or file system and inode, or the name of an
    //! in-process target. That
    //! of an NVMe character device is its block device's, because both are the same namespace.
    std::string identity;
    //! Of the node at `path` itself, to notice that it was replaced.
    std::string node_identity;
    //! Of an NVMe character device: the namespace's block device.
    std::string block_path;
};

//! "memory:<name>", "simulated:<name>" or an absolute path to an existing file or device. Throws Error:
//! NOT_FOUND, INVALID (directory, FIFO, relative path, controller instead of namespace), PERMISSION.
Target ResolveTarget(const std::string &name);

//! See Target::identity.
std::string IdentityOf(const struct stat &status);

//! The block device behind an NVMe character device, for locks and safety checks; any other target is itself.
Target BlockDeviceOf(const Target &target);

} // namespace rawduck
