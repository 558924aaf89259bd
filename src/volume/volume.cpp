#include "volume/volume.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "io/open_device.hpp"
#include "target/lock/reader_lock.hpp"
#include "target/stripe.hpp"
#include "volume/mount/in_use.hpp"
#include "volume/mount/volume_state.hpp"
#include "volume/names/file_name.hpp"
#include "volume/names/snapshot_name.hpp"
#include "volume/upkeep/defragmenter.hpp"

#include <chrono>
#include <cstring>

namespace rawduck {

namespace {

void TakeFileLock(const VolumeState &state, File &file, const OpenMode &mode) {
    if (mode.write && mode.lock == OpenMode::Lock::NONE) {
        state.RequireUnlocked(file, "write to");
    }
    const bool conflict =
        (mode.lock == OpenMode::Lock::EXCLUSIVE && (file.exclusive_lock || file.shared_locks > 0)) ||
        (mode.lock == OpenMode::Lock::SHARED && file.exclusive_lock);
    if (conflict) {
        throw Error(ErrorCode::LOCKED,
                    state.target.name + ": \"" + file.Name() + "\" is already open " +
                        (file.exclusive_lock ? "for writing" : "for reading") +
                        " in this process, likely by another DuckDB instance; detach it there "
                        "first, or attach with READ_ONLY in both");
    }
    file.exclusive_lock = file.exclusive_lock || mode.lock == OpenMode::Lock::EXCLUSIVE;
    file.shared_locks += mode.lock == OpenMode::Lock::SHARED ? 1 : 0;
}

} // namespace

Volume::Volume(std::unique_ptr<VolumeState> state) : state_(std::move(state)) {
    state_->answer_others = [this](const WriterRequest &request) { return Answer(request); };
}
Volume::~Volume() = default;

DeviceOptions DeviceOptionsOf(const MountOptions &options) {
    DeviceOptions device;
    device.engine = options.engine;
    device.max_transfer_bytes = options.max_transfer_bytes;
    device.polling = options.polling;
    device.placement = options.io.placement.mode != PlacementRequest::Mode::OFF;
    return device;
}

std::shared_ptr<Volume> Volume::Mount(const Target &target, const MountOptions &options,
                                      std::shared_ptr<IoStats> stats) {
    const auto begin = std::chrono::steady_clock::now();
    // What a reader does for a moment tells nobody to wait.
    const std::unique_ptr<ReaderLock> mounting =
        options.waits_for_readers ? TryReaderLock(target, ReaderBytes::MOUNTING) : nullptr;
    std::unique_ptr<TargetLock> lock;
    const auto take = [&] { lock = std::make_unique<TargetLock>(target, TargetLock::Mode::SHARED); };
    options.waits_for_readers ? WaitForBeginningReaders(target, take) : take();
    DeviceOptions device = DeviceOptionsOf(options);
    device.lock = lock.get();
    return MountLocked(target, std::move(lock), OpenDevice(target, device), options, std::move(stats), begin);
}

std::shared_ptr<Volume> Volume::MountDevice(const Target &target, std::unique_ptr<Device> device,
                                            const MountOptions &options, std::shared_ptr<IoStats> stats) {
    const auto begin = std::chrono::steady_clock::now();
    auto lock = std::make_unique<TargetLock>(target, TargetLock::Mode::SHARED);
    return MountLocked(target, std::move(lock), std::move(device), options, std::move(stats), begin);
}

std::shared_ptr<Volume> Volume::MountLocked(const Target &target, std::unique_ptr<TargetLock> lock,
                                            std::unique_ptr<Device> device, const MountOptions &options,
                                            std::shared_ptr<IoStats> stats,
                                            std::chrono::steady_clock::time_point begin) {
    auto io = std::make_unique<BlockIo>(std::move(device), options.io, target.name, std::move(stats));
    MountedMetadata mounted = MountMetadata(*io);
    auto state =
        std::make_unique<VolumeState>(target, std::move(lock), std::move(io), std::move(mounted), options);
    state->queue_mode = QueueModeName(options.io.queue_mode);
    state->queue_depth = options.io.queue_depth;
    state->mount_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    return std::shared_ptr<Volume>(new Volume(std::move(state)));
}

std::shared_ptr<Volume> Volume::MountReader(const Target &target, ReaderImage image,
                                            std::shared_ptr<const void> reader, const MountOptions &options,
                                            std::shared_ptr<IoStats> stats) {
    RAWDUCK_INVARIANT(reader, "something keeps what a reader reads");
    DeviceOptions device = DeviceOptionsOf(options);
    device.read_only = true;
    auto io =
        std::make_unique<BlockIo>(OpenDevice(target, device), options.io, target.name, std::move(stats));
    MountedMetadata mounted = MountImage(*io, std::move(image));
    return std::shared_ptr<Volume>(new Volume(std::make_unique<VolumeState>(
        target, nullptr, std::move(io), std::move(mounted), options, std::move(reader))));
}

std::unique_ptr<OpenFile> Volume::Open(const std::string &name, const OpenMode &mode) {
    CheckFileName(state_->target.name, name);
    std::unique_ptr<WriteScope> writing;
    if (mode.write) {
        writing = std::make_unique<WriteScope>(*state_);
    }
    // Made before anything is counted that only its closing counts down.
    std::unique_ptr<OpenFile> handle(new OpenFile(nullptr, nullptr, mode));
    std::shared_ptr<File> file;
    state_->WithRoom([&] {
        std::unique_lock<std::shared_mutex> guard(state_->names_mutex);
        file = state_->Find(name);
        if (file && file->Kind() == FileKind::DIRECTORY) {
            throw Error(ErrorCode::INVALID, state_->target.name + ": \"" + name + "\" is a directory");
        }
        if (file && mode.must_create) {
            throw Error(ErrorCode::EXISTS, state_->target.name + ": \"" + name + "\" exists already");
        }
        if (file && file->IsTemp() && mode.write && mode.kind != FileKind::TEMP) {
            throw Error(ErrorCode::EXISTS, state_->target.name + ": \"" + name +
                                               "\" is a temporary file of DuckDB's that is in use; choose "
                                               "another name");
        }
        if (!file && mode.write && (mode.create || mode.truncate || mode.must_create)) {
            file = state_->Create(name, mode.kind == FileKind::TEMP ? FileKind::TEMP
                                                                    : KindFromName(name, mode.kind));
        }
        if (!file) {
            state_->ThrowNoFile(name);
        }
        state_->RequireReadable(name);
        if (mode.write) {
            state_->RequireNoSnapshot(*file, "written to");
            state_->RequireNotReceiving(name);
        }
        if (mode.in_place && file->writers > 0) {
            throw Error(ErrorCode::LOCKED,
                        state_->target.name + ": \"" + name +
                            "\" is being written to by this process; close it there first");
        }
        TakeFileLock(*state_, *file, mode);
        file->in_place += mode.in_place ? 1 : 0;
        file->handles++;
        file->writers += mode.write ? 1 : 0;
        state_->open_handles++;
    });
    if (writing) {
        writing->Keep();
    }
    handle->volume_ = std::shared_ptr<VolumeState>(shared_from_this(), state_.get());
    handle->file_ = file;
    if (mode.in_place) {
        file->PublishMoved();
    }
    if (mode.truncate && file->Size() > 0) {
        file->Truncate(0);
    }
    return handle;
}

bool Volume::FileExists(const std::string &name) const {
    std::shared_lock<std::shared_mutex> guard(state_->names_mutex);
    const std::shared_ptr<File> file = state_->Find(name);
    return file && file->Kind() != FileKind::DIRECTORY;
}

bool Volume::Stat(const std::string &name, FileInfo &info) const {
    std::shared_lock<std::shared_mutex> guard(state_->names_mutex);
    const std::shared_ptr<File> file = state_->Find(name);
    if (file) {
        info = file->Info();
    }
    return file != nullptr;
}

VolumeInfo Volume::Info() const {
    const TreeSuperblock &sb = state_->superblock;
    const Capabilities &caps = state_->io->Caps();
    VolumeInfo info;
    info.target = state_->target.name;
    info.uuid = UuidText(sb.uuid);
    info.label = std::string(sb.label, strnlen(sb.label, sizeof(sb.label)));
    info.engine = caps.engine;
    info.engine_reason = state_->io->EngineReason();
    info.queue_mode = state_->queue_mode;
    info.format_version = sb.version;
    info.lba_size = sb.lba_size;
    info.queue_depth = std::min(state_->queue_depth, caps.max_queue_depth);
    info.memory_alignment = caps.memory_alignment;
    info.capacity_bytes = state_->capacity_units * ALLOCATION_UNIT_BYTES;
    info.growable_bytes = GrowableBytes();
    info.free_bytes = state_->space.FreeUnits() * ALLOCATION_UNIT_BYTES;
    const uint64_t zone_bytes = state_->room.HeldZones() * ZONE_UNITS * ALLOCATION_UNIT_BYTES;
    info.used_bytes = state_->space.TotalUnits() * ALLOCATION_UNIT_BYTES - info.free_bytes - zone_bytes;
    info.metadata_bytes = 2 * LogBytes(sb) + zone_bytes;
    info.largest_free_extent_bytes = state_->space.LargestFree() * ALLOCATION_UNIT_BYTES;
    info.epoch = state_->log.Epoch();
    info.log_bytes = state_->log.LogBytes();
    info.log_records = state_->log.LogRecords();
    info.checkpoint_pending = state_->log.CheckpointPending();
    info.volatile_write_cache = caps.volatile_write_cache;
    info.mount_ms = state_->mount_ms;
    info.deallocate = state_->deallocator.State();
    info.placement = state_->io->PlacementText();
    info.polling = caps.polling_obstacle.empty() ? "on" : "off: " + caps.polling_obstacle;
    info.spill_buffer_bytes = state_->spill.HeldBytes();
    info.spill_capacity_bytes = state_->spill.CapacityBytes();
    info.spill = state_->spill.Counters();
    info.bounce_bytes = state_->io->BounceBytes();
    info.reread_buffer_bytes = state_->io->RereadBytes();
    info.rereads = state_->io->Rereads();
    info.metadata_cache_bytes = state_->trees->store.CachedPages() * TREE_PAGE_BYTES;
    info.poisoned = state_->log.Poisoned();
    info.warning = state_->warning;
    if (const Stripe *stripe = state_->target.stripe.get()) {
        info.chunk_bytes = stripe->chunk_bytes;
        for (const StripeMember &member : stripe->members) {
            info.members.push_back(member.target.name);
        }
    }
    {
        std::lock_guard<std::mutex> access(state_->access_mutex);
        info.writable = state_->IsWriter();
    }
    std::shared_lock<std::shared_mutex> guard(state_->names_mutex);
    info.open_handles = state_->open_handles;
    for (const auto &[name, file] : state_->names) {
        info.files += file->Kind() == FileKind::DIRECTORY ? 0 : 1;
        info.extents += file->Info().extents.size();
    }
    return info;
}

std::unique_ptr<Defragmenter> Volume::Defragment(const std::string &name, uint64_t bytes_per_second) {
    CheckFileName(state_->target.name, name);
    return std::make_unique<Defragmenter>(std::shared_ptr<VolumeState>(shared_from_this(), state_.get()),
                                          name, bytes_per_second);
}

uint64_t Volume::Trim() {
    WriteScope writing(*state_);
    const uint64_t bytes = state_->deallocator.Trim(state_->capacity_units);
    writing.Finish();
    return bytes;
}

void Volume::RunWithoutWriters(const char *done, const std::function<void()> &work) const {
    std::lock_guard<std::mutex> access(state_->access_mutex);
    if (state_->IsWriter()) {
        ThrowInUse(state_->target, done);
    }
    work();
}

const PlacementMap &Volume::Placement() const {
    return state_->io->Placement();
}

const IoStats &Volume::Stats() const {
    return state_->io->Stats();
}

std::vector<FileInfo> Volume::Files() const {
    std::shared_lock<std::shared_mutex> guard(state_->names_mutex);
    std::vector<FileInfo> files;
    for (const auto &[name, file] : state_->names) {
        files.push_back(file->Info());
    }
    return files;
}

namespace {

//! Counts as a handle.
struct WritingHold {
    explicit WritingHold(std::shared_ptr<VolumeState> held) : state(std::move(held)), writing(*state) {
        std::unique_lock<std::shared_mutex> guard(state->names_mutex);
        state->open_handles++;
    }
    ~WritingHold() {
        std::unique_lock<std::shared_mutex> guard(state->names_mutex);
        state->open_handles--;
    }
    const std::shared_ptr<VolumeState> state;
    const WriteScope writing; // ends without names_mutex
};

} // namespace

std::shared_ptr<const void> Volume::HoldForWriting() {
    return std::make_shared<const WritingHold>(
        std::shared_ptr<VolumeState>(shared_from_this(), state_.get()));
}

bool Volume::Idle() const {
    std::shared_lock<std::shared_mutex> guard(state_->names_mutex);
    return state_->open_handles == 0 && state_->temp_files == 0;
}

} // namespace rawduck
