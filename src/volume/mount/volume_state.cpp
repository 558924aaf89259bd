#include "volume/mount/volume_state.hpp"

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/invariant.hpp"

#include <algorithm>

namespace rawduck {

namespace {

//! A clause; empty when freed space is deallocated.
std::string DeallocateObstacle(const Target &target, const Capabilities &caps, DeallocateMode mode) {
    if (mode == DeallocateMode::OFF) {
        return "nvme_deallocate says so";
    }
    if (!caps.deallocate) {
        return "the device takes no hints";
    }
    if (mode == DeallocateMode::AUTO && target.kind == TargetKind::REGULAR_FILE) {
        return "the file keeps the space that formatting reserved for it (nvme_deallocate = 'on' gives it "
               "back)";
    }
    return "";
}

SpillLimits SpillLimitsOf(const MountOptions &options) {
    return options.spill_buffer_bytes ? SpillLimits::Fixed(*options.spill_buffer_bytes)
                                      : SpillLimits::Free(MemorySupply::OfProcess());
}

} // namespace

VolumeState::VolumeState(const Target &target_p, std::unique_ptr<TargetLock> lock_p,
                         std::unique_ptr<BlockIo> io_p, MountedMetadata mounted, const MountOptions &options,
                         std::shared_ptr<const void> reader_p)
    : reader(std::move(reader_p)), target(target_p), lock(std::move(lock_p)), io(std::move(io_p)),
      superblock(mounted.found.metadata.image.superblock), trees(std::move(mounted.found.metadata.trees)),
      warning(mounted.found.warning), overwritten(std::move(mounted.found.overwritten)),
      space(std::move(mounted.free), std::move(mounted.candidates), std::move(mounted.shared)),
      room(space, trees->zones, DataArea(superblock), trees->pages.Zones().size(), target.name),
      log(*io, mounted.found.metadata.image, *trees, room,
          [this](const std::vector<Extent> &extents) { space.DiscardLogged(extents); }),
      spill(*io, SpillLimitsOf(options)),
      deallocator(*io, space, log, DeallocateObstacle(target, io->Caps(), options.deallocate),
                  options.deallocate_delay),
      context{*io, space, log, room, spill, deallocator, overwritten, superblock.lba_size} {
    space.OnReclaim([this] { ReclaimReservations(); });
    space.OnDiscard([this](const std::vector<Extent> &extents) { deallocator.Add(extents); });
    for (const auto &[id, entry] : mounted.found.files.entries) {
        names[entry.name] = std::make_shared<File>(context, id, entry.name, entry.kind, &entry);
        next_file_id = std::max(next_file_id, id + 1);
    }
    for (const auto &[id, lost] : mounted.found.files.unreadable) {
        CatalogEntry entry; // of which nothing is known but that it is there
        entry.name = lost.name;
        entry.kind = lost.kind;
        names[lost.name] = std::make_shared<File>(context, id, lost.name, lost.kind, &entry);
        unreadable[lost.name] = lost.why;
    }
    for (const auto &[name, file] : names) {
        file->KeepRoomForTail();
    }
    room.TakeFoundZones();
    if (!mounted.damage.empty()) {
        log.Poison("the metadata is damaged: " + mounted.damage);
    }
    if (!reader && HasNode(target.kind)) {
        ServeReaders();
    }
}

TreeSuperblock VolumeState::Layout() const {
    TreeSuperblock layout = superblock;
    layout.capacity_units = capacity_units;
    layout.data_end = layout.capacity_units - 1;
    SealSuperblock(layout);
    return layout;
}

// Where the node that readers lock cannot be opened, nobody reads beside a writer; that is no reason not to mount.
void VolumeState::ServeReaders() {
    try {
        reader_bytes = std::make_unique<ReaderBytes>(target);
    } catch (const Error &) {
        return;
    }
    const ReaderService::Handlers handlers{[this](const WriterRequest &request) { return Answer(request); },
                                           [this] { DropLeftReaders(); }};
    reader_service = std::make_unique<ReaderService>(target, handlers);
}

// The deallocator's thread may commit what the log holds, which may be written from the tails of files.
VolumeState::~VolumeState() {
    if (reader_service) {
        reader_service->Stop();
    }
    deallocator.Stop();
}

void VolumeState::BeginWrite(Patience patience) {
    if (reader) {
        throw Error(ErrorCode::READ_ONLY, target.name +
                                              ": what is attached as \"@latest\" is read beside whoever "
                                              "writes to it, and is not written to: attach it with "
                                              "READ_ONLY, or the database itself to write");
    }
    std::lock_guard<std::mutex> access(access_mutex);
    const std::string poisoned = log.Poisoned();
    if (!poisoned.empty()) {
        throw Error(ErrorCode::POISONED, target.name + ": the volume takes no writes (" + poisoned +
                                             "); reading goes on. `rawduck check " + target.name +
                                             "` says more");
    }
    if (io->Caps().read_only) {
        const std::string &part = io->Caps().read_only_part;
        throw Error(ErrorCode::PERMISSION, target.name + ": no permission to write to " +
                                               (part.empty() ? "this target" : part) +
                                               "; run as its owner or as root, or attach with READ_ONLY");
    }
    if ((superblock.ro_compat & ~KNOWN_RO_COMPAT) != 0) {
        throw Error(ErrorCode::UNSUPPORTED, target.name +
                                                ": the volume uses features that this rawduck can only read; "
                                                "attach with READ_ONLY, or use a newer rawduck");
    }
    if (!IsWriter()) {
        BecomeWriter(patience);
    }
    writers++;
}

bool VolumeState::BeginWriteBesideOthers() {
    std::lock_guard<std::mutex> access(access_mutex);
    const bool begins = IsWriter() && log.Poisoned().empty();
    writers += begins ? 1 : 0;
    return begins;
}

// A reader's lock excludes writers that use the same node of a block device or see the same /sys. A writer in
// another container may have changed the volume nevertheless, and what this mount would write from memory
// would overwrite that.
void VolumeState::BecomeWriter(Patience patience) {
    const auto change = [this] { lock->Change(TargetLock::Mode::EXCLUSIVE); };
    try {
        patience == Patience::WAITS ? WaitForBeginningReaders(target, change) : change();
    } catch (const Error &error) {
        if (error.Code() != ErrorCode::LOCKED) {
            throw;
        }
        throw WriterElsewhere(error.what());
    }
    try {
        if (!IsInProcess(target.kind) && !log.IsUnchanged()) {
            throw Error(ErrorCode::LOCKED,
                        target.name +
                            ": another process has written to the volume since it was mounted here, "
                            "through another node of the device, so what this process knows of it is "
                            "outdated; detach everything on it and attach it again");
        }
        io->BeginWriting();
        log.Begin();
    } catch (...) {
        lock->Change(TargetLock::Mode::SHARED);
        throw;
    }
    if (reader_service) {
        reader_service->Start();
    }
}

void VolumeState::EndWrite() {
    std::unique_lock<std::mutex> access(access_mutex);
    RAWDUCK_INVARIANT(writers > 0, "every writer that ends has begun");
    struct Leaving {
        ~Leaving() {
            if (!access.owns_lock()) {
                access.lock();
            }
            writers--;
        }
        std::unique_lock<std::mutex> &access;
        uint64_t &writers;
    } const leaving{access, writers};
    while (LastWriterLeaves()) {
        log.Commit(log.Queue({}));
        log.Settle();
        log.FinishCheckpoint();
        if (deallocator.Idle()) {
            lock->Change(TargetLock::Mode::SHARED);
            return;
        }
        // Once the lock is shared, another process may allocate freed space, so pending deallocations are
        // sent before. That takes time; others can open, close and write files meanwhile, because this writer
        // is still counted.
        access.unlock();
        deallocator.Drain();
        access.lock();
    }
}

// Under access_mutex, which keeps others from beginning to write, and so from making temporary files.
bool VolumeState::LastWriterLeaves() const {
    return writers == 1 && log.Poisoned().empty() && !HasTemporaryFiles();
}

bool VolumeState::HasTemporaryFiles() const {
    std::shared_lock<std::shared_mutex> guard(names_mutex);
    return temp_files > 0;
}

std::shared_ptr<File> VolumeState::Find(const std::string &name) const {
    auto entry = names.find(name);
    return entry == names.end() ? nullptr : entry->second;
}

void VolumeState::ThrowNoFile(const std::string &name) const {
    throw Error(ErrorCode::NOT_FOUND, target.name + ": no file \"" + name +
                                          "\" on this volume; `rawduck ls " + target.name + "` lists them");
}

void VolumeState::RequireReadable(const std::string &name) const {
    const auto lost = unreadable.find(name);
    if (lost != unreadable.end()) {
        throw Error(ErrorCode::CORRUPT,
                    target.name + ": \"" + name + "\" cannot be read: " + lost->second +
                        ". Other files can: copy what you need (`rawduck cp`), and restore this one "
                        "from a backup");
    }
}

bool VolumeState::HasChildren(const std::string &directory) const {
    if (directory.empty()) {
        return !names.empty();
    }
    auto next = names.lower_bound(directory + "/");
    return next != names.end() && next->first.compare(0, directory.size() + 1, directory + "/") == 0;
}

void VolumeState::CheckCreatable(const std::string &name) const {
    RequireNotReceiving(name);
    if (HasChildren(name)) {
        throw Error(ErrorCode::EXISTS, target.name + ": \"" + name + "\" is a directory");
    }
    const std::shared_ptr<File> database = Find(DatabaseOfLog(name));
    if (database && database->IsSnapshot()) {
        throw Error(ErrorCode::READ_ONLY, target.name + ": cannot create \"" + name + "\": \"" +
                                              database->Name() + "\" is a snapshot, and this its log");
    }
    for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
        const std::shared_ptr<File> parent = Find(name.substr(0, slash));
        if (parent && parent->Kind() != FileKind::DIRECTORY) {
            throw Error(ErrorCode::INVALID, target.name + ": cannot create \"" + name + "\": \"" +
                                                name.substr(0, slash) + "\" is a file, not a directory");
        }
    }
}

void VolumeState::RequireNoNameOfSnapshot(const std::string &name) const {
    const std::string database = DatabaseOfLog(name);
    if (Find(database) || Find(name)) {
        return; // its log, whatever it is called, or what is replaced, which has that name
    }
    const SnapshotName parts = SplitSnapshotName(database.empty() ? name : database);
    if (parts.snapshot.find('/') != std::string::npos) {
        return; // the "@" is a directory's
    }
    if (parts.snapshot == LATEST || ReaderOf(parts.snapshot)) {
        throw Error(ErrorCode::INVALID, target.name + ": cannot create \"" + name +
                                            "\": with \"@latest\", \"" + parts.file +
                                            "\" is read beside its writer; choose another name");
    }
    const std::shared_ptr<File> file = Find(parts.file);
    if (!parts.snapshot.empty() && file && file->Kind() != FileKind::DIRECTORY) {
        throw Error(ErrorCode::NOT_FOUND,
                    target.name + ": no snapshot \"" + parts.snapshot + "\" of \"" + parts.file +
                        "\" on this volume, and no other file is made with such a name; nvme_snapshots('" +
                        target.name + "') lists them, nvme_snapshot() (`rawduck snapshot`) makes one");
    }
}

void VolumeState::WithRoom(const std::function<void()> &action) {
    try {
        return action();
    } catch (const Error &error) {
        if (error.Code() != ErrorCode::NO_SPACE) {
            throw;
        }
    }
    if (room.CheckpointMayHelp()) {
        log.Checkpoint(); // what was freed may be used for pages then
    }
    space.ReclaimReservations();
    action();
}

std::shared_ptr<File> VolumeState::Create(const std::string &name, FileKind kind) {
    CheckCreatable(name);
    if (kind != FileKind::DIRECTORY && kind != FileKind::TEMP) { // which are called as their database is
        RequireNoNameOfSnapshot(name);
    }
    auto file = std::make_shared<File>(context, next_file_id, name, kind, nullptr);
    const auto entry = names.emplace(name, file).first;
    if (kind == FileKind::DIRECTORY) {
        try {
            log.Queue({CreateItem(next_file_id, kind, name)});
        } catch (...) {
            names.erase(entry);
            throw;
        }
    }
    temp_files += kind == FileKind::TEMP ? 1 : 0;
    next_file_id++;
    return file;
}

void VolumeState::RequireUnlocked(const File &file, const char *what) const {
    if (file.exclusive_lock || file.shared_locks > 0) {
        throw Error(ErrorCode::LOCKED, target.name + ": cannot " + what + " \"" + file.Name() +
                                           "\": it is already open " +
                                           (file.exclusive_lock ? "for writing" : "for reading") +
                                           " in this process; DETACH it there first");
    }
}

// DuckDB closes its databases and logs before it removes them. It may remove an unfinished COPY that is still
// open.
void VolumeState::RequireRemovable(const File &file) const {
    if (file.IsSnapshot()) {
        RequireNoSnapshot(file, "removed as other files are");
    }
    if (file.Kind() == FileKind::DATABASE || file.Kind() == FileKind::WAL) {
        RequireUnlocked(file, "remove");
    }
}

void VolumeState::ReclaimReservations() {
    std::vector<std::shared_ptr<File>> files;
    {
        std::shared_lock<std::shared_mutex> guard(names_mutex);
        const auto add = [&files](const std::shared_ptr<File> &file) {
            if (file->writers > 0) {
                files.push_back(file);
            }
        };
        for (const auto &[name, file] : names) {
            add(file);
        }
        for (const std::shared_ptr<File> &file : removed_files) {
            add(file);
        }
    }
    for (const std::shared_ptr<File> &file : files) {
        file->GiveBackReservation();
    }
}

void VolumeState::Retire(const std::shared_ptr<File> &file,
                         const std::function<void(bool published)> &queue) {
    if (file->handles > 0) {
        removed_files.insert(file);
    }
    try {
        file->Retire(queue);
    } catch (...) {
        removed_files.erase(file);
        throw;
    }
}

uint64_t VolumeState::QueueFreed(File &file) {
    return log.Queue({}, file.handles == 0 ? file.TakeExtents() : std::vector<Extent>());
}

uint64_t VolumeState::QueueMove(const std::shared_ptr<File> &file, const std::string &from,
                                const std::string &to) {
    CheckCreatable(to);
    RequireNoNameOfSnapshot(to);
    const auto [place, is_new] = names.emplace(to, nullptr);
    const std::shared_ptr<File> replaced = place->second;
    Item item(ItemType::MOVE, file->Id());
    uint64_t ticket = 0;
    try {
        item.name = to;
        const auto queue = [&](bool published) {
            item.replaced_id = replaced && published ? replaced->Id() : 0;
            ticket = log.Queue({std::move(item)});
        };
        file->Rename(to, [&] { replaced ? Retire(replaced, queue) : queue(false); });
    } catch (...) {
        if (is_new) {
            names.erase(place);
        }
        throw;
    }
    place->second = file;
    names.erase(from);
    return replaced ? QueueFreed(*replaced) : ticket;
}

uint64_t VolumeState::QueueRemove(Names::iterator entry) {
    const std::shared_ptr<File> file = entry->second;
    bool known = false;
    Retire(file, [&](bool published) {
        known = published && !file->IsTemp();
        if (known) {
            log.Queue({Item(ItemType::REMOVE, file->Id())});
        }
    });
    names.erase(entry);
    if (known) {
        return QueueFreed(*file);
    }
    const std::vector<Extent> freed = file->handles == 0 ? file->TakeExtents() : std::vector<Extent>();
    if (!file->IsTemp()) {
        space.Discard(freed);
        return 0;
    }
    context.FreeTemporary(freed);
    RAWDUCK_INVARIANT(temp_files > 0, "every temporary file is counted");
    if (--temp_files == 0) {
        spill.Shrink();
    }
    return 0;
}

} // namespace rawduck
