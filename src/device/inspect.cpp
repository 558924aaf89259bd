#include "device/inspect.hpp"

#include "common/error.hpp"
#include "common/units.hpp"
#include "device/open_target.hpp"
#include "device/sysfs.hpp"
#include "device/target.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

namespace rawduck {
namespace {

//! struct statx as of Linux 6.1. Defined here because the C library's may be older than the kernel.
struct StatxBuffer {
    uint32_t mask;
    uint8_t other_fields[148];
    uint32_t direct_memory_alignment;
    uint32_t direct_offset_alignment;
    uint8_t reserved[96];
};
static_assert(sizeof(StatxBuffer) == 256, "the kernel writes 256 bytes");
constexpr uint64_t SYSFS_SECTOR_BYTES = 512;           // whatever the logical block size
constexpr uint32_t STATX_DIRECT_IO_ALIGNMENT = 0x2000; // STATX_DIOALIGN

//! Alignments of direct I/O in bytes; both 0 when the kernel does not say.
struct DirectAlignment {
    uint32_t memory = 0;
    uint32_t offset = 0;
};

DirectAlignment AskAlignment(const Target &target, int fd) {
    StatxBuffer buffer = {};
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIRECT_IO_ALIGNMENT, &buffer) != 0 ||
        (buffer.mask & STATX_DIRECT_IO_ALIGNMENT) == 0) {
        return {}; // older than Linux 6.1, or a file system that does not report it
    }
    if (buffer.direct_memory_alignment == 0 || buffer.direct_offset_alignment == 0) {
        throw Error(ErrorCode::UNSUPPORTED,
                    target.name +
                        ": its file system refuses direct I/O (O_DIRECT) on this file; place the volume on "
                        "ext4 or XFS without data journalling, encryption or verity, or on a block device");
    }
    return {buffer.direct_memory_alignment, buffer.direct_offset_alignment};
}

uint32_t SysfsUint32(const std::string &path) {
    uint64_t value = 0;
    ReadNumber(path, value);
    return static_cast<uint32_t>(std::min<uint64_t>(value, UINT32_MAX));
}

//! The kernel reports a mask in older and newer versions alike: 511 means 512, 3 means 4.
uint32_t SysfsMemoryAlignment(const std::string &disk) {
    uint64_t mask = 0;
    if (!ReadNumber(disk + "/queue/dma_alignment", mask) || (mask & (mask + 1)) != 0) {
        return 0;
    }
    return static_cast<uint32_t>(mask + 1);
}

void DescribeHardware(const std::string &disk, TargetInfo &info) {
    info.model = ReadAttribute(disk + "/device/model");
    info.serial = ReadAttribute(disk + "/device/serial");
    if (info.serial.empty()) {
        info.serial = ReadAttribute(disk + "/serial"); // virtio
    }
    info.firmware = ReadAttribute(disk + "/device/firmware_rev");
    if (info.firmware.empty()) {
        info.firmware = ReadAttribute(disk + "/device/rev"); // SCSI
    }
}

void InspectBlockDevice(const Target &target, int fd, const std::string &directory, TargetInfo &info) {
    info = InfoFromSysfs(directory);
    int logical_block_size = 0;
    unsigned int physical_block_size = 0;
    int read_only = 0;
    if (ioctl(fd, BLKGETSIZE64, &info.capacity_bytes) != 0 ||
        ioctl(fd, BLKSSZGET, &logical_block_size) != 0 || ioctl(fd, BLKPBSZGET, &physical_block_size) != 0 ||
        ioctl(fd, BLKROGET, &read_only) != 0) {
        ThrowOpenError(target.name, "ask for its geometry", errno);
    }
    info.lba_size = static_cast<uint32_t>(logical_block_size);
    info.physical_block_size = physical_block_size;
    info.read_only = read_only != 0;
}

void InspectFile(const Target &target, int fd, const std::string &directory, TargetInfo &info) {
    struct stat status;
    if (fstat(fd, &status) != 0) {
        ThrowOpenError(target.name, "stat", errno);
    }
    const TargetInfo below = InfoFromSysfs(directory);
    info.capacity_bytes = static_cast<uint64_t>(status.st_size);
    info.lba_size = below.lba_size;
    info.physical_block_size = below.physical_block_size;
    info.memory_alignment = below.memory_alignment;
    // A file's durability also depends on its file system's metadata, so it is always flushed.
    info.volatile_write_cache = true;
}

} // namespace

TargetInfo InfoFromSysfs(const std::string &sysfs_directory) {
    TargetInfo info;
    info.memory_alignment = 0;
    if (sysfs_directory.empty()) {
        return info;
    }
    const std::string disk = DiskDirectory(sysfs_directory);
    uint64_t sectors = 0;
    ReadNumber(sysfs_directory + "/size", sectors);
    info.capacity_bytes = sectors * SYSFS_SECTOR_BYTES;
    info.lba_size = SysfsUint32(disk + "/queue/logical_block_size");
    info.physical_block_size = SysfsUint32(disk + "/queue/physical_block_size");
    info.max_transfer_bytes = static_cast<uint32_t>(
        std::min<uint64_t>(uint64_t(SysfsUint32(disk + "/queue/max_sectors_kb")) * KIB, GIB));
    info.volatile_write_cache = ReadAttribute(disk + "/queue/write_cache") != "write through";
    info.memory_alignment = SysfsMemoryAlignment(disk);
    info.read_only = ReadAttribute(sysfs_directory + "/ro") == "1";
    DescribeHardware(disk, info);
    return info;
}

TargetInfo InspectTarget(const Target &target) {
    if (target.kind == TargetKind::MEMORY) {
        throw Error(ErrorCode::INVALID,
                    target.name + ": memory has no geometry of its own; its engine describes it");
    }
    if (target.kind == TargetKind::NVME_CHARACTER_DEVICE) {
        throw Error(ErrorCode::UNSUPPORTED,
                    target.name + ": NVMe passthrough is not available in this version; use the "
                                  "namespace's block device (/dev/nvmeXnY)");
    }
    FileDescriptor fd = OpenTarget(target, O_RDONLY | O_NONBLOCK);
    struct stat status;
    if (fstat(fd.Get(), &status) != 0) {
        ThrowOpenError(target.name, "stat", errno);
    }
    const bool is_file = target.kind == TargetKind::REGULAR_FILE;
    // For a file: the disk below its file system, where the file system has exactly one.
    const std::string directory = SysfsDirectory(is_file ? status.st_dev : status.st_rdev);
    TargetInfo info;
    if (is_file) {
        InspectFile(target, fd.Get(), directory, info);
    } else {
        InspectBlockDevice(target, fd.Get(), directory, info);
    }
    DirectAlignment direct = AskAlignment(target, fd.Get());
    if (direct.memory != 0) {
        info.memory_alignment = direct.memory;
    }
    if (is_file) {
        // What a file calls its LBA is the least unit of direct I/O, and the format knows only 512 and 4096.
        uint32_t unit = direct.offset != 0 ? direct.offset : info.lba_size;
        info.lba_size = unit <= 512 ? 512 : unit <= UNIT_SIZE ? UNIT_SIZE : unit;
        info.physical_block_size = std::max(info.physical_block_size, info.lba_size);
    }
    if (info.lba_size != 512 && info.lba_size != UNIT_SIZE) {
        throw Error(ErrorCode::UNSUPPORTED, target.name + ": its logical block size is " +
                                                std::to_string(info.lba_size) +
                                                " bytes; only 512 and 4096 are supported");
    }
    if (info.memory_alignment == 0) {
        info.memory_alignment = info.lba_size;
    }
    info.read_only = info.read_only || access(target.path.c_str(), W_OK) != 0;
    return info;
}

} // namespace rawduck
