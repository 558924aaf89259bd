#include "volume/setup/examine_target.hpp"

#include "common/error.hpp"
#include "common/memory/aligned_buffer.hpp"
#include "io/device/memory_device.hpp"
#include "io/open_device.hpp"
#include "target/inspect.hpp"
#include "target/occupants/contents.hpp"
#include "target/system/file_descriptor.hpp"
#include "volume/journal/tree_superblock.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck {

namespace {

//! At each end of a target that is examined through its engine.
constexpr uint64_t EXAMINED_BYTES = 4 * MIB;

FileDescriptor CopyOfEnds(const Target &target, BlockIo &io) {
    const uint64_t capacity = io.Caps().capacity_bytes;
    const uint64_t length = std::min(EXAMINED_BYTES, AlignDown(capacity, io.Caps().lba_size));
    FileDescriptor copy(memfd_create("rawduck-contents", MFD_CLOEXEC));
    bool copied = copy.IsOpen() && ftruncate(copy.Get(), static_cast<off_t>(capacity)) == 0;
    AlignedBuffer buffer(length);
    for (const uint64_t offset : {uint64_t(0), capacity - length}) {
        io.Read(offset, buffer.Data(), length);
        const ssize_t written =
            copied ? pwrite(copy.Get(), buffer.Data(), length, static_cast<off_t>(offset)) : -1;
        copied = written == static_cast<ssize_t>(length);
    }
    if (!copied) {
        throw Error(ErrorCode::IO,
                    target.name +
                        ": no memory for a copy of what it holds, to examine that: " + ErrnoText(errno));
    }
    return copy;
}

} // namespace

std::vector<Occupant> OccupantsThrough(const Target &target, BlockIo &io) {
    return OccupantsIn(target, CopyOfEnds(target, io).Get());
}

std::vector<Occupant> MemoryOccupants(const Target &target) {
    if (!MemoryTargetExists(target.path)) {
        return {};
    }
    BlockIo io(OpenDevice(target, DeviceOptions()), BlockIoOptions(), target.name,
               std::make_shared<IoStats>());
    const std::string fingerprint = Fingerprint(target, CopyOfEnds(target, io).Get());
    return {{"it exists already in this process", true, "memory", "", "memory:" + fingerprint}};
}

void CheckFormatOptions(const std::string &target_name, const FormatOptions &options) {
    if (options.lba_size != 0 && options.lba_size != 512 && options.lba_size != 4096) {
        throw Error(ErrorCode::INVALID, target_name + ": an LBA size of " + std::to_string(options.lba_size) +
                                            " bytes is not possible; use 512 or 4096");
    }
    if (options.label.size() > 63) {
        throw Error(ErrorCode::INVALID, target_name + ": the label has " +
                                            std::to_string(options.label.size()) +
                                            " bytes, and at most 63 are allowed");
    }
    if (options.size_bytes != 0 && options.size_bytes < MIN_VOLUME_BYTES) {
        MakeTreeSuperblock(options.size_bytes, 4096, Uuid{}, "", 0); // throws the error that says why
    }
}

bool IsMissingFile(const std::string &target_name) {
    struct stat status;
    const bool may_be_made = target_name.rfind("/dev/", 0) != 0 && !target_name.empty() &&
                             target_name[0] == '/' && target_name.find('\0') == std::string::npos;
    return may_be_made && stat(target_name.c_str(), &status) != 0 && errno == ENOENT;
}

bool MustBeCreated(const std::string &target_name, const FormatOptions &options) {
    if (!IsMissingFile(target_name)) {
        return false;
    }
    if (options.size_bytes == 0) {
        throw Error(ErrorCode::NOT_FOUND, target_name +
                                              " does not exist; to make a file for the volume, say how "
                                              "large it shall be (--size 8G, or size := '8G')");
    }
    return true;
}

uint32_t ChooseLbaSize(const Target &target, const FormatOptions &options, uint32_t device_lba) {
    uint32_t lba_size = options.lba_size;
    if (lba_size == 0) {
        const bool is_device = HasNode(target.kind) && target.kind != TargetKind::REGULAR_FILE;
        const uint32_t physical = is_device ? InspectTarget(target).physical_block_size : 0;
        lba_size = DefaultLbaSize(target.kind, device_lba, physical);
    }
    if (lba_size % device_lba != 0) {
        throw Error(ErrorCode::INVALID, target.name + ": the target takes I/O only in multiples of " +
                                            std::to_string(device_lba) + " bytes; an LBA size of " +
                                            std::to_string(lba_size) + " is not possible on it");
    }
    return lba_size;
}

void RequireWritable(const Target &target, bool read_only) {
    if (read_only) {
        throw Error(ErrorCode::PERMISSION, target.name +
                                               ": no permission to write to this target; run as its owner "
                                               "or as root");
    }
}

uint32_t DefaultLbaSize(TargetKind kind, uint32_t device_lba, uint32_t physical_block_size) {
    const bool any = kind == TargetKind::REGULAR_FILE || kind == TargetKind::MEMORY;
    return any || physical_block_size >= ALLOCATION_UNIT_BYTES ? ALLOCATION_UNIT_BYTES : device_lba;
}

} // namespace rawduck
