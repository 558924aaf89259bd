//! A volume: any number of named files on one target, with no file system in between.
//!
//! Invariants (the rest of src/volume keeps them; docs/ON_DISK_FORMAT.md has the bytes):
//!  - What a file's durable size covers is on the device before the record that publishes the size is.
//!  - Namespace operations are records of one log, in issue order; Remove, Move, Truncate and directory
//!    operations are durable when they return, a new file is durable with its first Sync or its closing.
//!  - Space freed by an operation is allocated again only once the record of that operation is durable.
//!  - A log is appended to only by the mount that started it: the first write after a mount starts a new one.
//!  - Durable bytes are never overwritten: new contents are written out of place and a record switches to
//!    them. The partial last LBA of a file is part of the record.
//!  - After a failed write of the log or a failed flush the volume is poisoned: it can be read, and nothing
//!    else.
#pragma once

#include "io/block_io.hpp"
#include "volume/mount/open_file.hpp"
#include "volume/mount/options.hpp"
#include "volume/mount/volume_info.hpp"
#include "volume/names/file_name.hpp"
#include "volume/names/snapshot_name.hpp"
#include "volume/readers/reader_channel.hpp"
#include "volume/readers/reader_image.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace rawduck {

class VolumeState;  // volume/mount/volume_state.hpp
class Defragmenter; // volume/upkeep/defragmenter.hpp

//! What a move may replace. Whoever has a file locked goes
//! on writing to it, and what it writes would be lost.
enum class MoveMode {
    REPLACE,     //!< what nobody has locked
    REPLACE_OWN, //!< what the caller has locked exclusively
    NEW_NAME     //!< nothing
};

enum class RemoveMode {
    UNLOCKED, //!< what nobody has locked, if it is a database or a log
    NOBODY_HAS_IT, //!< what nobody has locked, whatever it is, nor the database that it is a log of; no temporary file
    OWN            //!< what the caller has locked exclusively
};

//! Bytes of a volume before it has grown, and afterwards.
struct VolumeGrowth {
    uint64_t before_bytes = 0, after_bytes = 0;
};

class Volume;
//! Answers other processes that ask what an SQL function says of a volume that this process has open for writing. It is called
//! by a thread of the volume, so it keeps no pin. Throws Error for a function that it does not know. One for all volumes, set
//! before the first is mounted; without one they are told that.
using Describer = std::string (*)(const Volume &volume, const std::string &function);
void SetDescriber(Describer describer);

//! Thread-safe.
class Volume : public std::enable_shared_from_this<Volume> {
  public:
    //! Writes an empty volume. Refuses (EXISTS, listing every reason) what FindOccupants reports unless
    //! forced, and also then what is not what was agreed to; LOCKED when something on it is open, in this
    //! process too; NO_SPACE when the target is smaller than 16 MiB.
    static void Format(const std::string &target_name, const FormatOptions &options);
    //! Writes an empty volume that is striped over all of them. All are locked and examined before the first is written
    //! to, and become members once the volume is there. options.size_bytes: of each file. Throws as Format.
    static void FormatStripe(const std::vector<std::string> &target_names, const FormatOptions &options);
    //! Creates and formats a memory target that does not exist, before it is mounted.
    static void FormatNewMemory(const Target &target, uint64_t size_bytes);

    //! Mounts with a shared lock. `stats` outlives the mount. Throws Error: NOT_FOUND, PERMISSION, LOCKED,
    //! CORRUPT (with what is still valid), UNSUPPORTED (newer format or incompatible features).
    static std::shared_ptr<Volume> Mount(const Target &target, const MountOptions &options,
                                         std::shared_ptr<IoStats> stats);
    //! The same on a device that is open already, such as a simulated one.
    static std::shared_ptr<Volume> MountDevice(const Target &target, std::unique_ptr<Device> device,
                                               const MountOptions &options, std::shared_ptr<IoStats> stats);
    //! Writes an empty volume of `capacity_bytes` (0: as much as there is) to an open device, without asking
    //! what is on it.
    static void FormatDevice(BlockIo &io, const FormatOptions &options, uint32_t lba_size,
                             uint64_t capacity_bytes = 0);
    //! What a reader beside the writer sees: the files of an image. `reader` keeps these as they are while the volume is
    //! there. Reading is all that it allows.
    static std::shared_ptr<Volume> MountReader(const Target &target, ReaderImage image,
                                               std::shared_ptr<const void> reader,
                                               const MountOptions &options, std::shared_ptr<IoStats> stats);
    ~Volume();

    std::unique_ptr<OpenFile> Open(const std::string &name, const OpenMode &mode);
    bool FileExists(const std::string &name) const;
    bool Stat(const std::string &name, FileInfo &info) const;
    //! What is to be done to a log; a new database has none that may stay, so DuckDB removes that before.
    enum class LogUse { APPEND, REMOVE_OR_MOVE };
    //! For DuckDB, which writes, moves and removes a log while it has the database locked, or removes it where there is no
    //! database. Throws Error LOCKED where `name` is the log of a database that is there and that nobody here has locked, or
    //! is to be appended to and the database is not there: somebody else has made it, or put another volume in the place of
    //! the one where it was attached. Other names are nobody's log.
    void RequireOwnLog(const std::string &name, LogUse use) const;
    //! Throws NOT_FOUND, or LOCKED for a database or a log that is open with a lock, unless it is the caller's.
    void Remove(const std::string &name, RemoveMode mode = RemoveMode::UNLOCKED);
    //! Atomically replaces `to`, in one record; what may be replaced: see MoveMode. Throws Error: LOCKED,
    //! EXISTS. Durable on return, but for X.wal.recovery over X.wal: that is durable with the next record of
    //! the log, which DuckDB's removal of X.wal.checkpoint makes.
    void Move(const std::string &from, const std::string &to, MoveMode mode = MoveMode::REPLACE);
    //! Removes what nobody has locked, whatever it is (RemoveMode::NOBODY_HAS_IT); of a database its logs, too, in one record.
    //! Returns the names of all of them. Throws as Remove.
    std::vector<std::string> RemoveWithLogs(const std::string &name);
    //! Gives a file another name, of a database its logs, too, in one record, durable on return. What has that name is
    //! replaced, with its logs, only if it `replaces`. Throws Error: NOT_FOUND; LOCKED for what is attached, or being
    //! written; EXISTS; INVALID where a log without a database has the name of one.
    void Rename(const std::string &from, const std::string &to, bool replaces);
    //! Keeps a file as it is durable now, as <name>@<snapshot>, which nothing changes; of a database its logs, too, at
    //! the same instant. Costs the same whatever the size, and space only for what changes afterwards. Durable on return.
    //! Throws Error: NOT_FOUND, EXISTS, INVALID, LOCKED, NO_SPACE.
    //! `created_us`: when it is said to be made; 0: now.
    void Snapshot(const std::string &name, const std::string &snapshot, int64_t created_us = 0);
    //! Makes a file of its own with the contents of another one, or of a snapshot, as they are durable now; of a database
    //! its logs, too. As Snapshot.
    void Clone(const std::string &source, const std::string &name, int64_t created_us = 0);
    //! Makes what was received under one name a file `to`; and `snapshot`, unless its name is empty, with what
    //! OriginNameOf(received) says. `replaced`: what has the names of `to` and its logs, which the caller has locked
    //! exclusively. All of it in one record, durable on return; `received` stays. Throws Error as Snapshot; EXISTS when
    //! something else has one of the names.
    void TakeReceived(const std::string &received, const std::string &to, const ReceivedSnapshot &snapshot,
                      const std::vector<std::unique_ptr<OpenFile>> &replaced);
    //! Gives up <name>@<snapshot>; space that nothing else has is free then. Durable on return. Throws Error: NOT_FOUND,
    //! LOCKED while it is open.
    void DropSnapshot(const std::string &name);
    std::vector<SnapshotInfo> Snapshots() const;
    //! Keeps what a reader is to see as `file` until nobody has the byte of that number locked (ReaderLock), and says where
    //! it lies: of <name>@latest what of <name> is durable now, of another file that, if it is a snapshot (LOCKED
    //! otherwise); of a database the logs, too. As Snapshot.
    ReaderImage BeginReader(const std::string &file, uint64_t number);
    //! Drops what was kept for readers that have ended, if somebody in this process is writing.
    void DropLeftReaders() noexcept;
    //! Where a file lies, of a database its logs, too, which are called `name` there. The caller sees to it that nobody
    //! writes to them.
    ReaderImage ImageOf(const std::string &source, const std::string &name) const;
    //! A directory exists when it was made, or when a file lies below it. "" is the root and always exists.
    bool DirectoryExists(const std::string &name) const;
    void MakeDirectory(const std::string &name);
    //! `recursive` removes everything below, unless Remove would refuse some of it; otherwise returns false
    //! when it is missing or not empty.
    bool RemoveDirectory(const std::string &name, bool recursive);
    //! Direct children of a directory: name without the directory, and whether it is a directory itself.
    void List(const std::string &directory,
              const std::function<void(const std::string &, bool)> &visit) const;

    //! Makes the volume as large as its target is now. `size_bytes`: makes a regular file that large before, with all of its
    //! space reserved; 0: as it is. Durable on return; whatever interrupts it, the volume has the old size or the new
    //! one. Others read and write meanwhile. Throws Error: INVALID for a size that cannot be, NO_SPACE, and as a write
    //! does.
    VolumeGrowth Grow(uint64_t size_bytes);
    //! Bytes of the target behind the volume that Grow would use; 0 too where the target cannot be asked.
    uint64_t GrowableBytes() const;
    //! Does what a process has asked for, and returns the answer. For readers: VolumeState::Answer.
    std::string Answer(const WriterRequest &request);
    //! Begins to lay a file into fewer extents: see Defragmenter, which goes on step by step, and throws as it does.
    std::unique_ptr<Defragmenter> Defragment(const std::string &name, uint64_t bytes_per_second);
    //! Deallocates all free space on the device, whenever it was freed: also what was in use when a process
    //! crashed. Returns bytes. Throws Error: LOCKED, READ_ONLY, UNSUPPORTED, IO.
    uint64_t Trim();
    //! Runs `work`, which takes a shared lock of its own on the target, while writers wait. Throws as
    //! ThrowInUse when there is a writer already.
    void RunWithoutWriters(const char *done, const std::function<void()> &work) const;
    VolumeInfo Info() const;
    const PlacementMap &Placement() const;
    std::vector<FileInfo> Files() const;
    const IoStats &Stats() const;
    //! Keeps the volume open for writing, as a file that is open does, until it is destroyed, before the last pin is: what
    //! others want of it meanwhile is done for them. Throws Error as Open.
    std::shared_ptr<const void> HoldForWriting();
    //! True when nothing is open and no temporary file holds data: unmounting would lose nothing.
    bool Idle() const;

  private:
    friend class OpenFile;
    explicit Volume(std::unique_ptr<VolumeState> state);
    //! `begin`: when the mount began, before it waited for the lock.
    static std::shared_ptr<Volume> MountLocked(const Target &target, std::unique_ptr<TargetLock> lock,
                                               std::unique_ptr<Device> device, const MountOptions &options,
                                               std::shared_ptr<IoStats> stats,
                                               std::chrono::steady_clock::time_point begin);
    std::unique_ptr<VolumeState> state_;
};

} // namespace rawduck
