#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/memory/aligned_buffer.hpp"
#include "common/scope_exit.hpp"
#include "io/device/memory_device.hpp"
#include "io/open_device.hpp"
#include "target/inspect.hpp"
#include "target/lock/target_lock.hpp"
#include "target/occupants/claim_check.hpp"
#include "target/occupants/contents.hpp"
#include "target/occupants/occupants.hpp"
#include "target/reserve_file.hpp"
#include "volume/empty_volume.hpp"
#include "volume/mount/in_use.hpp"
#include "volume/registry.hpp"
#include "volume/volume.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck {

namespace {

//! At each end of a target that is examined through its engine.
constexpr uint64_t EXAMINED_BYTES = 4 * MIB;

//! A regular file that is made, or made longer, for a volume. Undone unless Keep is called.
class PreparedFile {
  public:
    //! Makes the file if it is not there; nothing else is changed.
    explicit PreparedFile(const std::string &path) : path_(path) {
        const FileDescriptor made(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
        created_ = made.IsOpen();
        const int error_number = errno;
        if (!created_ && error_number != EEXIST) {
            throw Error(ErrorCode::PERMISSION,
                        path + ": cannot create the file for the volume: " + ErrnoText(error_number) +
                            (error_number == ENOENT ? "; make its folder first" : ""));
        }
    }
    //! Without the lock nothing is undone: another process may have made the new file its own.
    ~PreparedFile() = default;
    PreparedFile(const PreparedFile &) = delete;
    PreparedFile &operator=(const PreparedFile &) = delete;

    //! Grows the file to `size_bytes` if it is shorter, with all of its space. `fd` is the file, locked.
    void Reserve(int fd, uint64_t size_bytes) {
        struct stat status;
        if (fstat(fd, &status) != 0) {
            throw Error(ErrorCode::IO, path_ + ": cannot ask for its size: " + ErrnoText(errno));
        }
        old_size_ = status.st_size;
        grown_fd_ = old_size_ < static_cast<off_t>(size_bytes) ? fd : -1;
        ReserveFile(fd, path_, 0, size_bytes);
    }
    //! `fd` is the file, locked. Until then others may have made it their own: it is not ours to remove when
    //! it holds anything.
    void Locked(int fd) {
        struct stat status;
        created_ = created_ && fstat(fd, &status) == 0 && status.st_size == 0;
    }
    void Keep() { kept_ = true; }
    //! The file may have become a volume of the new length.
    void KeepLength() { grown_fd_ = -1; }
    //! To be called while the file is locked.
    void Undo() {
        if (created_ && !kept_) {
            unlink(path_.c_str());
        } else if (grown_fd_ >= 0 && !kept_) {
            // If that fails, the contents of the file are still there.
            [[maybe_unused]] const int result = ftruncate(grown_fd_, old_size_);
        }
        kept_ = true;
    }

  private:
    const std::string path_;
    bool created_ = false, kept_ = false;
    int grown_fd_ = -1;
    off_t old_size_ = 0;
};

void RefuseOccupied(const Target &target, const std::vector<Occupant> &occupants, bool force) {
    std::string reasons;
    bool forceable = true;
    for (const Occupant &occupant : occupants) {
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

//! What lies on a target that has no node, and so none to be examined through. Signatures lie at its beginning
//! and at its end: these are copied into a file as long as the target, in memory, whose rest reads as zeros.
std::vector<Occupant> OccupantsThrough(const Target &target, BlockIo &io) {
    const uint64_t capacity = io.Caps().capacity_bytes;
    const uint64_t length = std::min(EXAMINED_BYTES, AlignDown(capacity, io.Caps().lba_size));
    const FileDescriptor copy(memfd_create("rawduck-contents", MFD_CLOEXEC));
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
    std::vector<Occupant> occupants;
    for (std::string &content : FindContents(target, copy.Get())) {
        occupants.push_back({std::move(content), true});
    }
    return occupants;
}

//! Replaces a memory target by a new one.
void RecreateMemoryTarget(const Target &target, const FormatOptions &options) {
    if (MemoryTargetExists(target.path) && !options.force) {
        throw Error(ErrorCode::EXISTS, target.name +
                                           ": refused to format: it exists already in this process; to "
                                           "empty it, say force := true");
    }
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

//! Whether the target is a regular file that has to be created.
bool MustBeCreated(const std::string &target_name, const FormatOptions &options) {
    struct stat status;
    const bool may_be_made = target_name.rfind("/dev/", 0) != 0 && !target_name.empty() &&
                             target_name[0] == '/' && target_name.find('\0') == std::string::npos;
    if (!may_be_made || stat(target_name.c_str(), &status) == 0 || errno != ENOENT) {
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

void RequireWritable(const Target &target, bool read_only) {
    if (read_only) {
        throw Error(ErrorCode::PERMISSION, target.name +
                                               ": no permission to write to this target; run as its owner "
                                               "or as root");
    }
}

} // namespace

uint32_t DefaultLbaSize(TargetKind kind, uint32_t device_lba, uint32_t physical_block_size) {
    const bool any = kind == TargetKind::REGULAR_FILE || kind == TargetKind::MEMORY;
    return any || physical_block_size >= ALLOCATION_UNIT_BYTES ? ALLOCATION_UNIT_BYTES : device_lba;
}

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
    RefuseOccupied(target, FindOccupants(target, ClaimCheck::SKIP), options.force); // we have the claim
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
        RefuseOccupied(target, OccupantsThrough(target, io), options.force);
    }
    const uint32_t lba_size = ChooseLbaSize(target, options, io.Caps().lba_size);
    const uint64_t capacity_bytes = is_file && size_bytes != 0 ? size_bytes : io.Caps().capacity_bytes;
    const TreeSuperblock sb =
        MakeTreeSuperblock(capacity_bytes, lba_size, MakeUuid(), options.label, NowUs());
    const EmptyVolume fresh(sb);
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
