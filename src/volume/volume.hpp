//! A volume: any number of named files on one target, with no file system in between.
//!
//! Invariants (the rest of src/volume keeps them; docs/ON_DISK_FORMAT.md has the bytes):
//!  - What a file's durable size covers is on the device before the record that publishes the size is.
//!  - Namespace operations are records of one log, in issue order; Remove, Move, Truncate and directory
//!    operations are durable when they return, a new file is durable with its first Sync or its closing.
//!  - Space freed by an operation is handed out again only once the record of that operation is durable.
//!  - A log is appended to only by the mount that started it: the first write after a mount starts a new one.
//!  - Bytes that are durable are never overwritten: they are replaced by writing elsewhere and switching
//!  over,
//!    and the partial last LBA of a file travels inside the record.
//!  - After a failed write of the log or a failed flush the volume is poisoned: reads go on, nothing else
//!  does.
#pragma once

#include "io/block_io.hpp"
#include "volume/deallocate_mode.hpp"
#include "volume/spill_counters.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace rawduck {

class File;        // volume/file.hpp
class VolumeState; // volume/volume_state.hpp

enum class FileKind : uint8_t {
    DATABASE = 1,
    WAL = 2,
    TEMP = 3,  //!< never in the durable metadata: gone at the next mount
    OTHER = 4, //!< anything else: Parquet, CSV, ...
    DIRECTORY = 5
};
const char *FileKindName(FileKind kind);

PlacementClass PlacementOf(FileKind kind);

//! Whether a name is that of a log: ".wal", ".wal.checkpoint" or ".wal.recovery". Then it is written where
//! logs are and may use space that is kept for them; its bytes are as durable as any. Otherwise `otherwise`.
FileKind KindFromName(const std::string &name, FileKind otherwise);

//! What the name says that a file is for when DuckDB spills: it calls its temporary files
//! duckdb_temp_<process>_<instance>_ and then storage_<size>-<number>.tmp, block-<number>.block, or owner. A
//! name says nothing of how the file was opened: anybody may choose it.
enum class TemporaryName {
    NONE,   //!< of no temporary file of this process
    BLOCKS, //!< many blocks of one size
    BLOCK,  //!< one long block
    OWNER   //!< marks the instance as running; always empty
};
TemporaryName TemporaryNameOf(const std::string &name);

struct FormatOptions {
    uint64_t size_bytes =
        0; //!< for a regular file that is missing or to be resized, and for memory; 0: as is
    uint32_t lba_size =
        0;              //!< 512 or 4096; 0: the device's, 4096 for files, memory and disks with such blocks
    bool force = false; //!< destroy what FindOccupants reports, except mounts, swap and holders
    std::string label;  //!< at most 63 bytes
};

//! Bytes. A disk that takes less than it writes at once (512e) reads, changes and writes a whole physical
//! block for a write of less, and the power may go while durable bytes beside it are written again: there,
//! and where nothing stands against it, 4096.
uint32_t DefaultLbaSize(TargetKind kind, uint32_t device_lba, uint32_t physical_block_size);

struct MountOptions {
    std::string engine = "auto";
    BlockIoOptions io;
    uint32_t max_transfer_bytes = 0;        //!< 0: the default
    uint64_t spill_buffer_bytes = 28 * MIB; //!< memory between temporary files and the target
    bool polling = false;                   //!< see DeviceOptions
    DeallocateMode deallocate = DeallocateMode::AUTO;
    std::chrono::milliseconds deallocate_delay{1000}; //!< how long freed space is collected
    uint64_t memory_target_bytes = 1 * GIB; //!< size of a memory target that is created by being used
};
//! How a target is opened for a mount.
DeviceOptions DeviceOptionsOf(const MountOptions &options);

struct VolumeInfo {
    std::string target, uuid, label, engine, engine_reason, queue_mode;
    uint32_t format_version = 0, lba_size = 0, queue_depth = 0, memory_alignment = 0;
    uint64_t capacity_bytes = 0, used_bytes = 0, free_bytes = 0, metadata_bytes = 0;
    uint64_t largest_free_extent_bytes = 0;
    uint64_t files = 0, open_handles = 0, extents = 0;
    uint64_t epoch = 0, log_bytes = 0, log_records = 0;
    bool writable = false; //!< holds the exclusive lock
    bool volatile_write_cache = false;
    double mount_ms = 0;
    std::string placement;            //!< see BlockIo::PlacementText
    std::string polling;              //!< on, or off and why
    std::string deallocate;           //!< "on", or "off: " and why
    uint64_t spill_buffer_bytes = 0;  //!< memory held for spilled blocks
    SpillCounters spill;              //!< since the mount
    uint64_t bounce_bytes = 0;        //!< see BlockIo::BounceBytes
    uint64_t reread_buffer_bytes = 0; //!< memory held for what is read again soon
    RereadCounters rereads;           //!< since the mount
    std::string poisoned;             //!< why it refuses writes; empty when healthy
    std::string warning;              //!< such as "superblock 1 is damaged; superblock 0 is in use"
};

struct ExtentInfo {
    uint64_t file_offset = 0, device_offset = 0, length = 0; //!< bytes
};

struct FileInfo {
    std::string name;
    FileKind kind = FileKind::OTHER;
    uint64_t size = 0, allocated = 0; //!< bytes
    int64_t modified_us = 0;          //!< microseconds since 1970-01-01 UTC
    std::vector<ExtentInfo> extents;
};

struct OpenMode {
    bool read = true, write = false;
    bool create = false;      //!< create when missing
    bool truncate = false;    //!< FILE_CREATE_NEW: create when missing, empty what is there
    bool must_create = false; //!< throw EXISTS when it is there
    enum class Lock { NONE, SHARED, EXCLUSIVE } lock = Lock::NONE;
    //! For a new file. TEMP for what DuckDB opens as temporary only; never guessed from the name.
    FileKind kind = FileKind::OTHER;
};

//! A handle on an open file. Thread-safe except that the file must not be used after Close. Closing the last
//! writing handle publishes the size, as if synced. A removed or replaced file stays readable until closed.
class OpenFile {
  public:
    ~OpenFile();
    OpenFile(const OpenFile &) = delete;
    OpenFile &operator=(const OpenFile &) = delete;

    //! Reads `length` bytes, fewer only at the end of the file. Returns bytes read. Throws Error.
    uint64_t Read(void *data, uint64_t length, uint64_t offset);
    //! Writes all of it or throws Error (NO_SPACE, IO, READ_ONLY, POISONED). Extends the file when it ends
    //! later.
    void Write(const void *data, uint64_t length, uint64_t offset);
    //! Writes at the end; returns the offset that the data got.
    uint64_t Append(const void *data, uint64_t length);
    //! Everything written to this file, its creation and every earlier namespace operation become durable.
    void Sync();
    //! Durable on return. Shrinks only; truncated bytes never come back.
    void Truncate(uint64_t size);
    //! The range keeps its size and reads as anything afterwards. False when the device takes no hints.
    bool Deallocate(uint64_t offset, uint64_t length);
    uint64_t Size() const;
    FileInfo Info() const;
    //! Idempotent; the destructor calls it and swallows nothing but what a destructor must: call it yourself
    //! to see errors of the final publish.
    void Close();

  private:
    friend class Volume;
    OpenFile(std::shared_ptr<class Volume> volume, std::shared_ptr<File> file, OpenMode mode);
    void RequireWrite() const;
    std::shared_ptr<class Volume> volume_;
    std::shared_ptr<File> file_;
    OpenMode mode_;
};

//! Thread-safe.
class Volume : public std::enable_shared_from_this<Volume> {
  public:
    //! Writes an empty volume. Refuses (EXISTS, listing every reason) what FindOccupants reports unless
    //! forced; NO_SPACE when the target is smaller than 16 MiB.
    static void Format(const std::string &target_name, const FormatOptions &options);

    //! Mounts with a shared lock. `stats` outlives the mount. Throws Error: NOT_FOUND, PERMISSION, LOCKED,
    //! CORRUPT (with what still verifies), UNSUPPORTED (newer format or incompatible features).
    static std::shared_ptr<Volume> Mount(const Target &target, const MountOptions &options,
                                         std::shared_ptr<IoStats> stats);
    //! The same on a device that is open already, such as a simulated one.
    static std::shared_ptr<Volume> MountDevice(const Target &target, std::unique_ptr<Device> device,
                                               const MountOptions &options, std::shared_ptr<IoStats> stats);
    //! Writes an empty volume of `capacity_bytes` (0: as much as there is) to an open device, without asking
    //! what is on it.
    static void FormatDevice(BlockIo &io, const FormatOptions &options, uint32_t lba_size,
                             uint64_t capacity_bytes = 0);
    ~Volume();

    std::unique_ptr<OpenFile> Open(const std::string &name, const OpenMode &mode);
    bool FileExists(const std::string &name) const;
    bool Stat(const std::string &name, FileInfo &info) const;
    //! Throws NOT_FOUND.
    void Remove(const std::string &name);
    //! Atomically replaces `to`, in one record.
    //! Durable on return, but for X.wal.recovery over X.wal: that is durable with the next record of the log,
    //! which DuckDB's removal of X.wal.checkpoint makes.
    void Move(const std::string &from, const std::string &to);
    //! A directory exists when it was made, or when a file lies below it. "" is the root and always exists.
    bool DirectoryExists(const std::string &name) const;
    void MakeDirectory(const std::string &name);
    //! `recursive` removes everything below; otherwise returns false when it is missing or not empty.
    bool RemoveDirectory(const std::string &name, bool recursive);
    //! Direct children of a directory: name without the directory, and whether it is a directory itself.
    void List(const std::string &directory,
              const std::function<void(const std::string &, bool)> &visit) const;

    //! Tells the device of all free space, whoever freed it and when: also what was in use when a process
    //! crashed. Returns bytes. Throws Error: LOCKED, READ_ONLY, UNSUPPORTED, IO.
    uint64_t Trim();
    VolumeInfo Info() const;
    const PlacementMap &Placement() const;
    std::vector<FileInfo> Files() const;
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

//! A valid name is 1 to 255 bytes of '/'-separated components, none of them empty, "." or "..", without NUL.
//! Throws Error INVALID naming what is wrong.
void CheckFileName(const std::string &name);

} // namespace rawduck
