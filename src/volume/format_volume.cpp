#include "common/aligned_buffer.hpp"
#include "common/clock.hpp"
#include "common/error.hpp"
#include "volume/format/superblock.hpp"
#include "volume/volume.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck {

namespace {

//! Written at once where zeros are written.
constexpr uint64_t ZEROS_BYTES = 4 * MIB;

bool IsMemoryName(const std::string &name) {
    return name.rfind("memory:", 0) == 0;
}

// Makes or resizes a regular file. Its space is reserved now, so that the volume does not run out later
// because the file system below did.
void PrepareRegularFile(const std::string &path, uint64_t size_bytes) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        throw Error(ErrorCode::PERMISSION,
                    path + ": cannot create the file for the volume: " + ErrnoText(errno));
    }
    int failed = ftruncate(fd, static_cast<off_t>(size_bytes)) == 0 ? 0 : errno;
    if (failed == 0) {
        failed = posix_fallocate(fd, 0, static_cast<off_t>(size_bytes));
    }
    close(fd);
    if (failed != 0) {
        throw Error(failed == ENOSPC ? ErrorCode::NO_SPACE : ErrorCode::IO,
                    path + ": cannot reserve " + std::to_string(size_bytes) + " bytes for the volume: " +
                        ErrnoText(failed) + "; choose a smaller --size or another disk");
    }
}

void RefuseOccupied(const Target &target, bool force) {
    std::string reasons;
    bool forceable = true;
    for (const Occupant &occupant : FindOccupants(target)) {
        reasons += (reasons.empty() ? "" : "; ") + occupant.what;
        forceable = forceable && occupant.forceable;
    }
    if (reasons.empty() || (force && forceable)) {
        return;
    }
    throw Error(ErrorCode::EXISTS,
                target.name + ": refused to format: " + reasons +
                    (forceable ? ". Formatting destroys what is there; if that is what you want, "
                                 "say --force (force := true in SQL)"
                               : ". Release it first; --force does not override this"));
}

void WriteUnit(BlockIo &io, uint64_t unit, const void *content) {
    AlignedBuffer buffer(UNIT_SIZE);
    memcpy(buffer.Data(), content, UNIT_SIZE);
    io.Write(unit * UNIT_SIZE, buffer.Data(), UNIT_SIZE, PlacementClass::METADATA);
}

void FormatMemory(const std::string &target_name, const FormatOptions &options) {
    const std::string name = target_name.substr(strlen("memory:"));
    if (MemoryTargetExists(name) && !options.force) {
        throw Error(ErrorCode::EXISTS, target_name +
                                           ": refused to format: it exists already in this process; to "
                                           "empty it, say force := true");
    }
    DropMemoryTarget(name);
    MemoryTargetOptions memory;
    memory.capacity_bytes = options.size_bytes == 0 ? GIB : options.size_bytes;
    memory.lba_size = options.lba_size == 0 ? 4096 : options.lba_size;
    if (memory.capacity_bytes < MIN_VOLUME_BYTES) {
        MakeSuperblock(memory.capacity_bytes, memory.lba_size, Uuid{}, "",
                       0); // throws the error that says why
    }
    CreateMemoryTarget(name, memory);
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
        MakeSuperblock(options.size_bytes, 4096, Uuid{}, "", 0); // throws the error that says why
    }
}

//! A regular file that is to be made, or resized, is prepared; returns the target to format.
Target PrepareTarget(const std::string &target_name, const FormatOptions &options) {
    struct stat status;
    const bool exists = stat(target_name.c_str(), &status) == 0;
    if (!exists && target_name.rfind("/dev/", 0) != 0 && !target_name.empty() && target_name[0] == '/') {
        if (options.size_bytes == 0) {
            throw Error(ErrorCode::NOT_FOUND, target_name +
                                                  " does not exist; to make a file for the volume, say how "
                                                  "large it shall be (--size 8G, or size := '8G')");
        }
        PrepareRegularFile(target_name, options.size_bytes);
        return ResolveTarget(target_name);
    }
    const Target target = ResolveTarget(target_name);
    RefuseOccupied(target, options.force);
    if (target.kind == TargetKind::REGULAR_FILE && options.size_bytes != 0) {
        PrepareRegularFile(target.path, AlignDown(options.size_bytes, UNIT_SIZE));
    } else if (options.size_bytes != 0) {
        throw Error(ErrorCode::INVALID, target_name + ": a device is formatted whole; leave out --size");
    }
    return target;
}

// In a file whose blocks are only reserved, the file system has to note durably which of them have been
// written: one more write of its journal for each commit. The blocks of the metadata areas have been, after
// this.
void WriteMetadataAreas(BlockIo &io, uint32_t lba_size) {
    const Superblock layout = MakeSuperblock(io.Caps().capacity_bytes, lba_size, Uuid{}, "", 0);
    AlignedBuffer zeros;
    zeros.AppendZeros(ZEROS_BYTES);
    for (const uint64_t start : layout.metadata_start) {
        const uint64_t bytes = layout.metadata_units * UNIT_SIZE;
        for (uint64_t done = 0; done < bytes; done += ZEROS_BYTES) {
            io.Write(start * UNIT_SIZE + done, zeros.Data(), std::min(ZEROS_BYTES, bytes - done),
                     PlacementClass::METADATA);
        }
    }
    io.Flush();
}

} // namespace

// Superblock 1 goes first and comes back last: whenever this is interrupted, the target is either what it was
// (by superblock 0) or the new, empty volume.
void Volume::FormatDevice(BlockIo &io, const FormatOptions &options, uint32_t lba_size) {
    const Superblock sb =
        MakeSuperblock(io.Caps().capacity_bytes, lba_size, MakeUuid(), options.label, NowUs());
    const char zeros[UNIT_SIZE] = {};
    WriteUnit(io, sb.capacity_units - 1, zeros);
    io.Flush();
    WriteUnit(io, 0, &sb);
    io.Flush();
    WriteUnit(io, sb.capacity_units - 1, &sb);
    io.Flush();
}

void Volume::Format(const std::string &target_name, const FormatOptions &options) {
    CheckFormatOptions(target_name, options);
    if (IsMemoryName(target_name)) {
        FormatMemory(target_name, options);
    }
    const Target target =
        IsMemoryName(target_name) ? ResolveTarget(target_name) : PrepareTarget(target_name, options);
    TargetLock lock(target, TargetLock::Mode::EXCLUSIVE);
    DeviceOptions device_options;
    BlockIo io(OpenDevice(target, device_options), BlockIoOptions(), target.name,
               std::make_shared<IoStats>());
    if (io.Caps().read_only) {
        throw Error(ErrorCode::PERMISSION, target.name +
                                               ": no permission to write to this target; run as its owner "
                                               "or as root");
    }
    const uint32_t device_lba = io.Caps().lba_size;
    const bool fixed_by_device = target.kind != TargetKind::REGULAR_FILE && target.kind != TargetKind::MEMORY;
    const uint32_t lba_size =
        options.lba_size != 0 ? options.lba_size : (fixed_by_device ? device_lba : 4096);
    if (lba_size % device_lba != 0) {
        throw Error(ErrorCode::INVALID, target.name + ": the target takes I/O only in multiples of " +
                                            std::to_string(device_lba) + " bytes; an LBA size of " +
                                            std::to_string(lba_size) + " is not possible on it");
    }
    FormatDevice(io, options, lba_size);
    if (target.kind == TargetKind::REGULAR_FILE) {
        WriteMetadataAreas(io, lba_size);
    }
}

} // namespace rawduck
