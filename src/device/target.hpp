//! A target is what a volume lies on: a regular file, a block device, an NVMe namespace, or process memory.
//! This file turns a user's text into one, asks the operating system about it, and says why it must not be
//! formatted.
#pragma once

#include "device/nvme_identify.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
    //! What is opened: the canonical path (symbolic links resolved), or the name behind "memory:" or
    //! "simulated:".
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

//! Source: stat(2), sysfs queue attributes, statx(STATX_DIOALIGN).
struct TargetInfo {
    uint64_t capacity_bytes = 0;
    uint32_t lba_size = 0;            //!< logical block size in bytes
    uint32_t physical_block_size = 0; //!< in bytes
    uint32_t memory_alignment = 1;    //!< of buffers for direct I/O, in bytes
    uint32_t max_transfer_bytes = 0;  //!< of one command; 0 when the kernel does not say
    bool volatile_write_cache = true; //!< true when unknown: flushing too often is safe
    //! The disk has Force Unit Access of its own and is not known to ignore it. Where it has none, the kernel
    //! makes a flush of each such write.
    bool native_fua = false;
    bool polling_queues = false; //!< the driver has queues whose completions can be polled for
    bool read_only = false;
    std::string model, serial, firmware; //!< empty when the target has none
    //! Largest command that reaches the device unsplit and without a copy in the kernel; 0 when unknown.
    uint64_t max_passthrough_bytes = 0;
    //! Largest range of a Deallocate (0: the device takes none), and how many ranges a command carries.
    uint64_t max_deallocate_bytes = 0;
    uint32_t max_deallocate_ranges = 1;
    std::string passthrough_path; //!< /dev/ngXnY of an NVMe namespace; empty when there is none
    std::optional<NvmeInfo> nvme; //!< of an NVMe namespace that this user may ask
};

//! "memory:<name>", "simulated:<name>" or an absolute path to an existing file or device. Throws Error:
//! NOT_FOUND, INVALID (directory, FIFO, relative path, controller instead of namespace), PERMISSION.
Target ResolveTarget(const std::string &name);

//! The block device behind an NVMe character device, for locks and safety checks; any other target is itself.
Target BlockDeviceOf(const Target &target);

//! Geometry of a file or device. Throws Error when it cannot be opened for reading, its LBA size is not 512
//! or 4096, or RequireUsable refuses the NVMe namespace. Targets in this process are described by their
//! engine instead and are refused with INVALID.
TargetInfo InspectTarget(const Target &target);

//! Every reason why writing to this target would destroy something: mounted (itself or a partition), swap,
//! holders (device mapper, md), partitions, known signatures (libblkid), a rawduck volume. Empty: free to
//! use.
struct Occupant {
    std::string what; //!< a clause such as "it is mounted on /home" or "it carries an ext4 file system"
    bool forceable =
        false; //!< contents, which the user may give up; false: in use, and never to be overwritten
};
//! Whether to ask the kernel if somebody holds a block device exclusively. Its holder must not.
enum class ClaimCheck { ASK, SKIP };
//! Targets in this process: always empty.
std::vector<Occupant> FindOccupants(const Target &target, ClaimCheck claim = ClaimCheck::ASK);

//! One row per block device of the machine (/sys/block and partitions), for `rawduck devices`.
struct DeviceRow {
    std::string path;
    TargetInfo info;
    std::vector<Occupant> occupants;
    std::string error; //!< why it could not be inspected; the other fields are then partial
};
std::vector<DeviceRow> ListBlockDevices();

} // namespace rawduck
