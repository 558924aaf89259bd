#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/scope_exit.hpp"
#include "io/device/memory_device.hpp"
#include "io/open_device.hpp"
#include "target/inspect.hpp"
#include "target/lock/target_lock.hpp"
#include "target/occupants/claim_check.hpp"
#include "volume/mount/in_use.hpp"
#include "volume/registry.hpp"
#include "volume/setup/consent.hpp"
#include "volume/setup/empty_volume.hpp"
#include "volume/setup/examine_target.hpp"
#include "volume/setup/prepared_file.hpp"
#include "volume/volume.hpp"

#include <cerrno>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck {

namespace {

//! Replaces a memory target by a new one.
void RecreateMemoryTarget(const Target &target, const FormatOptions &options) {
    RefuseOccupied({{target.name, MemoryOccupants(target)}}, options);
    DropMemoryTarget(target.path);
    MemoryTargetOptions memory;
    memory.capacity_bytes = options.size_bytes == 0 ? GIB : options.size_bytes;
    memory.lba_size = options.lba_size == 0 ? 4096 : options.lba_size;
    if (memory.capacity_bytes < MIN_VOLUME_BYTES) {
        MakeTreeSuperblock(memory.capacity_bytes, memory.lba_size, Uuid{}, "",
                           0); // throws the error that says why
    }
    CreateMemoryTarget(target.path, memory);
}

//! Cuts off what lies behind a volume that is smaller than its file.
void ShortenFile(const Target &target, int fd, uint64_t size_bytes) {
    struct stat status;
    if (fstat(fd, &status) == 0 &&
        static_cast<uint64_t>(status.st_size) >= size_bytes + ALLOCATION_UNIT_BYTES &&
        ftruncate(fd, static_cast<off_t>(size_bytes)) != 0) {
        throw Error(ErrorCode::IO, target.name +
                                       ": the volume is there, but its file could not be shortened to " +
                                       std::to_string(size_bytes) + " bytes: " + ErrnoText(errno));
    }
}

} // namespace

void Volume::FormatDevice(BlockIo &io, const FormatOptions &options, uint32_t lba_size,
                          uint64_t capacity_bytes) {
    const TreeSuperblock sb =
        MakeTreeSuperblock(capacity_bytes == 0 ? io.Caps().capacity_bytes : capacity_bytes, lba_size,
                           MakeUuid(), options.label, NowUs());
    const EmptyVolume fresh(sb);
    WipeSuperblocks(io, fresh);
    WriteSuperblocks(io, fresh, [] {});
}

void Volume::FormatNewMemory(const Target &target, uint64_t size_bytes) {
    FormatOptions options;
    options.size_bytes = size_bytes;
    CheckFormatOptions(target.name, options);
    RecreateMemoryTarget(target, options);
    BlockIo io(OpenDevice(target, DeviceOptions()), BlockIoOptions(), target.name,
               std::make_shared<IoStats>());
    FormatDevice(io, options, ChooseLbaSize(target, options, io.Caps().lba_size));
}

// Locked first, then looked at, then changed. What can be refused is refused before anything is changed; a
// file that was made is removed again, and one that was made longer gets its old length back.
void Volume::Format(const std::string &target_name, const FormatOptions &options) {
    CheckFormatOptions(target_name, options);
    std::optional<PreparedFile> file;
    if (MustBeCreated(target_name, options)) {
        file.emplace(target_name);
    }
    const Target target = ResolveTarget(target_name);
    const bool is_file = target.kind == TargetKind::REGULAR_FILE;
    const TargetReservation reservation(target, "formatted");
    if (target.kind == TargetKind::MEMORY) {
        RecreateMemoryTarget(target, options);
    }
    TargetLock lock(target, TargetLock::Mode::EXCLUSIVE);
    const ScopeExit undo([&file] {
        if (file) {
            file->Undo();
        }
    });
    if (file) {
        file->Locked(lock.DescriptorOf(target));
    }
    RequireNoReaders(target, "formatted");
    if (HasNode(target.kind)) {
        RefuseOccupied({{target.name, FindOccupants(target, ClaimCheck::SKIP)}},
                       options); // we have the claim
    }
    const uint64_t size_bytes = AlignDown(options.size_bytes, ALLOCATION_UNIT_BYTES);
    if (is_file && size_bytes != 0) {
        const TargetInfo info = InspectTarget(target);
        RequireWritable(target, info.read_only);
        ChooseLbaSize(target, options, info.lba_size);
        if (!file) {
            file.emplace(target.path);
        }
        file->Reserve(lock.DescriptorOf(target), size_bytes);
    } else if (size_bytes != 0 && target.kind != TargetKind::MEMORY) {
        throw Error(ErrorCode::INVALID, target_name + ": a device is formatted whole; leave out --size");
    }
    DeviceOptions device;
    device.lock = &lock;
    BlockIo io(OpenDevice(target, device), BlockIoOptions(), target.name, std::make_shared<IoStats>());
    RequireWritable(target, io.Caps().read_only);
    if (target.kind == TargetKind::VFIO_FUNCTION) {
        RefuseOccupied({{target.name, OccupantsThrough(target, io)}}, options);
    }
    const uint32_t lba_size = ChooseLbaSize(target, options, io.Caps().lba_size);
    const uint64_t capacity_bytes = is_file && size_bytes != 0 ? size_bytes : io.Caps().capacity_bytes;
    const TreeSuperblock sb =
        MakeTreeSuperblock(capacity_bytes, lba_size, MakeUuid(), options.label, NowUs());
    const EmptyVolume fresh(sb);
    if (file) {
        file->KeepName();
    }
    WipeSuperblocks(io, fresh);
    if (file) {
        file->KeepLength();
    }
    WriteSuperblocks(io, fresh, [&] {
        if (is_file) {
            ShortenFile(target, lock.DescriptorOf(target), capacity_bytes);
            io.Flush(); // superblock 1 is looked for at the end of the file
        }
    });
    if (is_file) {
        WriteAreas(io, fresh);
    }
    if (file) {
        file->Keep();
    }
}

} // namespace rawduck
