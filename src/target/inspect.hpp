//! The geometry of a target, and what its hardware can do.
#pragma once

#include "target/nvme/nvme_identify.hpp"
#include "target/target.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace rawduck {

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
    //! Of a regular file: the disk below its file system, as sysfs tells it. Looked up once as long as
    //! somebody keeps it: keep it while the file is open, since until then its file system stays mounted and
    //! the disk's number cannot become another one's.
    std::shared_ptr<const TargetInfo> disk;
};

//! Geometry of a file or device. Throws Error when it cannot be opened for reading, its LBA size is not 512
//! or 4096, or RequireUsable refuses the NVMe namespace. Targets without a node are described by their
//! engine instead and are refused with INVALID.
TargetInfo InspectTarget(const Target &target);

//! What every user may know of a block device, without opening it. Numbers are 0 where sysfs does not tell.
TargetInfo InfoFromSysfs(const std::string &sysfs_directory);

} // namespace rawduck
