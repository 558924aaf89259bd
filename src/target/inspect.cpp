#include "target/inspect.hpp"

#include "common/error.hpp"
#include "common/units.hpp"
#include "target/nvme/nvme_node.hpp"
#include "target/open_target.hpp"
#include "target/system/sysfs.hpp"
#include "target/target.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/fs.h>
#include <map>
#include <mutex>
#include <sys/ioctl.h>
#include <sys/syscall.h>

namespace rawduck {
namespace {

//! struct statx as of Linux 6.1. Defined here because the C library's may be older than the kernel.
struct StatxBuffer {
    uint32_t mask;
    uint8_t other_fields[140];
    uint64_t mount;
    uint32_t direct_memory_alignment;
    uint32_t direct_offset_alignment;
    uint8_t reserved[96];
};
static_assert(sizeof(StatxBuffer) == 256, "the kernel writes 256 bytes");
constexpr uint32_t STATX_MOUNT = 0x1000;               // STATX_MNT_ID, of Linux 5.8
constexpr uint32_t STATX_DIRECT_IO_ALIGNMENT = 0x2000; // STATX_DIOALIGN
constexpr uint64_t NVME_MAX_LBAS = 65536;              // of one command: NLB has 16 bits and counts from 0

constexpr uint32_t NVME_MAX_RANGES = 256; // of Dataset Management

//! Alignments of direct I/O in bytes; both 0 when the kernel does not say.
struct DirectAlignment {
    uint32_t memory = 0;
    uint32_t offset = 0;
};

DirectAlignment AskAlignment(const Target &target, int fd) {
    StatxBuffer buffer = {};
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_MOUNT | STATX_DIRECT_IO_ALIGNMENT, &buffer) != 0 ||
        (buffer.mask & STATX_DIRECT_IO_ALIGNMENT) == 0) {
        return {}; // older than Linux 6.1, or a file system that does not report it
    }
    if ((buffer.mask & STATX_MOUNT) != 0 && buffer.mount == 0) {
        return {}; // QEMU's emulation of programs hands over the kernel's mask, but no field that is newer than it
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

void RefuseZoned(const Target &target, const std::string &directory) {
    const std::string zoned = ReadAttribute(DiskDirectory(directory) + "/queue/zoned");
    if (!zoned.empty() && zoned != "none") {
        throw Error(ErrorCode::UNSUPPORTED, target.name + ": the device is zoned (" + zoned +
                                                "), and a volume needs one that can be written anywhere");
    }
}

//! What Identify says counts for more than sysfs.
void UseIdentify(const Target &target, const std::string &directory, const NvmeInfo &nvme, TargetInfo &info) {
    RequireUsable(nvme, target.name);
    const std::string queue = DiskDirectory(directory) + "/queue/";
    uint64_t limit = nvme.max_transfer_bytes == 0 ? GIB : nvme.max_transfer_bytes;
    if (uint64_t hardware_limit = uint64_t(SysfsUint32(queue + "max_hw_sectors_kb")) * KIB) {
        limit = std::min(limit, hardware_limit);
    }
    // Memory that starts within a page touches one page more than its length.
    if (uint64_t segments = SysfsUint32(queue + "max_segments")) {
        limit = std::min(limit, std::max<uint64_t>(segments - 1, 1) * PAGE_BYTES);
    }
    info.max_passthrough_bytes = std::min(limit, NVME_MAX_LBAS * nvme.lba_size);
    if (nvme.deallocate) {
        ReadNumber(queue + "discard_max_hw_bytes", info.max_deallocate_bytes);
        info.max_deallocate_ranges =
            std::clamp(SysfsUint32(queue + "max_discard_segments"), 1u, NVME_MAX_RANGES);
    }
    info.native_fua = HonoursForceUnitAccess(nvme.model);
    info.model = nvme.model;
    info.serial = nvme.serial;
    info.firmware = nvme.firmware;
    info.nvme = nvme;
}

//! A block device serves without Identify, which needs more privileges than reading and writing.
void TryIdentify(const Target &target, int fd, const std::string &directory, TargetInfo &info) {
    if (!IsNvmeBlockDevice(directory)) {
        return;
    }
    std::optional<NvmeInfo> nvme;
    try {
        nvme = IdentifyNvme(fd, target.name);
    } catch (const Error &) {
        return;
    }
    UseIdentify(target, directory, *nvme, info);
    struct stat status;
    if (fstat(fd, &status) == 0) {
        info.passthrough_path = NvmeGenericPath(status.st_rdev);
    }
}

//! The disk below a file system, where that has exactly one.
std::shared_ptr<const TargetInfo> DiskBelow(dev_t number) {
    static auto &mutex = *new std::mutex; // files are opened while the process ends, too
    static auto &disks = *new std::map<dev_t, std::weak_ptr<const TargetInfo>>;
    {
        std::lock_guard<std::mutex> guard(mutex);
        if (const auto known = disks[number].lock()) {
            return known;
        }
    }
    auto disk = std::make_shared<const TargetInfo>(InfoFromSysfs(SysfsDirectory(number)));
    std::lock_guard<std::mutex> guard(mutex);
    disks[number] = disk;
    return disk;
}

void InspectFile(const struct stat &status, TargetInfo &info) {
    info.disk = DiskBelow(status.st_dev);
    info.capacity_bytes = static_cast<uint64_t>(status.st_size);
    info.lba_size = info.disk->lba_size;
    info.physical_block_size = info.disk->physical_block_size;
    info.memory_alignment = info.disk->memory_alignment;
    info.native_fua = info.disk->native_fua;
    // A file's durability also depends on its file system's metadata, so it is always flushed.
    info.volatile_write_cache = true;
}

//! Identify first: the kernel gives the block device of a namespace that it cannot use no size.
TargetInfo InspectGeneric(const Target &target) {
    FileDescriptor fd = OpenTarget(target, O_RDONLY | O_NONBLOCK);
    const NvmeInfo nvme = IdentifyNvme(fd.Get(), target.name);
    RequireUsable(nvme, target.name);
    TargetInfo info = InspectTarget(BlockDeviceOf(target));
    struct stat status;
    if (stat(target.block_path.c_str(), &status) != 0) {
        ThrowOpenError(target.name, "stat " + target.block_path, errno);
    }
    const std::string directory = SysfsDirectory(status.st_rdev);
    uint64_t block_namespace = nvme.namespace_id;
    ReadNumber(DiskDirectory(directory) + "/nsid", block_namespace);
    if (block_namespace != nvme.namespace_id || info.capacity_bytes != nvme.capacity_lbas * nvme.lba_size) {
        throw Error(ErrorCode::IO, target.name + ": it does not match its block device " + target.block_path +
                                       ", which is of another namespace or size; rescan the controller "
                                       "(nvme ns-rescan) or use " +
                                       target.block_path);
    }
    UseIdentify(target, directory, nvme, info);
    info.volatile_write_cache = nvme.volatile_write_cache;
    info.read_only = info.read_only || access(target.path.c_str(), W_OK) != 0;
    return info;
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
    info.polling_queues = SysfsUint32(disk + "/queue/io_poll") != 0;
    info.memory_alignment = SysfsMemoryAlignment(disk);
    info.read_only = ReadAttribute(sysfs_directory + "/ro") == "1";
    DescribeHardware(disk, info);
    info.native_fua = ReadAttribute(disk + "/queue/fua") == "1" && HonoursForceUnitAccess(info.model);
    return info;
}

TargetInfo InspectTarget(const Target &target) {
    if (!HasNode(target.kind)) {
        throw Error(
            ErrorCode::INVALID,
            target.name +
                ": a target without a device node has no geometry of its own; its engine describes it");
    }
    if (target.kind == TargetKind::NVME_CHARACTER_DEVICE) {
        return InspectGeneric(target);
    }
    const FileDescriptor fd = target.open_descriptor >= 0
                                  ? FileDescriptor(target.open_descriptor, FileDescriptor::Closing::NEVER)
                                  : OpenTarget(target, O_RDONLY | O_NONBLOCK);
    struct stat status;
    if (fstat(fd.Get(), &status) != 0) {
        ThrowOpenError(target.name, "stat", errno);
    }
    const bool is_file = target.kind == TargetKind::REGULAR_FILE;
    TargetInfo info;
    if (is_file) {
        InspectFile(status, info);
    } else {
        const std::string directory = SysfsDirectory(status.st_rdev);
        InspectBlockDevice(target, fd.Get(), directory, info);
        RefuseZoned(target, directory);
        TryIdentify(target, fd.Get(), directory, info);
    }
    DirectAlignment direct = AskAlignment(target, fd.Get());
    if (direct.memory != 0) {
        info.memory_alignment = direct.memory;
    }
    if (is_file) {
        // What a file calls its LBA is the least unit of direct I/O, and the format knows only 512 and 4096.
        uint32_t unit = direct.offset != 0 ? direct.offset : info.lba_size;
        info.lba_size = unit <= 512 ? 512 : unit <= ALLOCATION_UNIT_BYTES ? ALLOCATION_UNIT_BYTES : unit;
        info.physical_block_size = std::max(info.physical_block_size, info.lba_size);
    }
    if (info.lba_size != 512 && info.lba_size != ALLOCATION_UNIT_BYTES) {
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
