//! One file of a mounted volume: maps its bytes to the target, grows, and tells the log what became durable.
//!
//! Where a byte is: everything before `tail_start_` lies on the target where `map_` says (or in a hole); what
//! was appended since lies in `tail_`, in memory, until a Sync writes its whole LBAs and puts the rest into
//! the record. With an empty tail everything lies on the target and the size is a multiple of the LBA size.
//!
//! Locks are taken in the order publish_mutex_, gate_, map_mutex_, name_mutex_, never those of two files at a
//! time (docs/ARCHITECTURE.md has the order of all locks). The gate is held shared by reads and by aligned
//! writes, exclusively by whatever moves the tail or truncates, so that no command is in flight to space that
//! is being freed. The exception are reads of bytes that are replaced at the same time: they may return
//! anything, as reads of bytes that are being overwritten may.
#pragma once

#include "common/gate.hpp"
#include "common/memory/aligned_buffer.hpp"
#include "io/storage_file.hpp"
#include "volume/file/deallocator.hpp"
#include "volume/file/extent_map.hpp"
#include "volume/file/file_info.hpp"
#include "volume/file/hole_set.hpp"
#include "volume/log/file_metadata.hpp"
#include "volume/log/metadata_log.hpp"
#include "volume/space/space.hpp"
#include "volume/spill/spill_buffer.hpp"

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>

namespace rawduck {

//! DuckDB's three headers: the record that switches to a new one has its checksum, which saves a flush.
constexpr uint64_t HEAD_UNITS = 3;
constexpr uint64_t HEAD_BYTES = HEAD_UNITS * ALLOCATION_UNIT_BYTES;

//! What a file needs of its volume.
struct FileContext {
    BlockIo &io;
    Space &space;
    MetadataLog &log;
    MetadataRoom &room;
    SpillBuffer &spill;
    Deallocator &deallocator;
    const std::vector<Extent> &overwritten; //!< of a volume with a damaged log: see JournalImage
    uint32_t lba_size;

    //! Gives back what a temporary file covered. Nobody may be reading or writing it.
    void FreeTemporary(const std::vector<Extent> &extents) const;
};

//! Thread-safe, except that the members marked so are guarded by the volume's names mutex.
class File {
  public:
    //! `entry` is null for a file that is being created, which throws Error NO_SPACE when there is no room
    //! for its metadata.
    File(const FileContext &context, uint64_t id, std::string name, FileKind kind, const CatalogEntry *entry);
    //! A file that is being made with the contents of another one, which its entry names. Throws as for a new one.
    struct Cloned {};
    File(const FileContext &context, uint64_t id, const CatalogEntry &entry, Cloned);

    //! For a log that a mount has found, once all files have what they need: takes the room that a new one
    //! has. There may be none.
    void KeepRoomForTail();

    uint64_t Id() const { return id_; }
    FileKind Kind() const { return kind_; }
    bool IsTemp() const { return kind_ == FileKind::TEMP; }
    bool IsSnapshot() const { return snapshot_; }
    std::string Name() const;
    //! Calls `queue`, which tells the log that the file has this name now; when it throws, or there is no
    //! room for the name, nothing has changed.
    void Rename(std::string name, const std::function<void()> &queue);
    uint64_t Size() const { return size_.load(std::memory_order_acquire); }
    //! Changes with each write and truncation, before it returns: bytes that were read since the version is
    //! this are what a read returns now. Appends change no bytes that are there.
    uint64_t ContentVersion() const { return content_version_.load(std::memory_order_acquire); }
    FileInfo Info() const;
    FileLayout Layout() const;

    uint64_t Read(char *data, uint64_t length, uint64_t offset);
    //! As StorageFile::ReadRanges.
    void ReadRanges(const std::vector<StorageFile::Range> &ranges);
    //! As StorageFile::Pin.
    std::vector<StorageFile::MemoryPiece> Pin(const std::vector<StorageFile::Range> &ranges,
                                              MemoryPinner &pinner, std::unique_ptr<StorageFile::Hold> &hold);
    void Write(const char *data, uint64_t length, uint64_t offset);
    uint64_t Append(const char *data, uint64_t length);
    void Truncate(uint64_t size);
    bool Deallocate(uint64_t offset, uint64_t length);

    //! Where durable contents lie from a file unit on, until they go on elsewhere or end. Nothing behind the last whole unit
    //! of them.
    std::optional<Extent> ExtentAt(uint64_t unit) const;
    //! Durable contents go to another place, which was allocated for them and is the file's then; the next Sync switches to
    //! it durably, and frees what they had. Reads and writes of the file wait meanwhile. False, and nothing is done, when
    //! there are no such contents, or others have some of them, too. When it throws, nothing has changed.
    bool MoveTo(const Extent &place);
    //! What was moved becomes durable in its new place. Throws as Sync.
    void PublishMoved();

    //! Data, size and everything queued before become durable.
    void Sync();
    //! Writes what can be written and gives back space behind the
    //! size that was only reserved. For the last writer's close.
    void ReleaseReservation();
    //! Gives back the space only. For when others need it.
    void GiveBackReservation();

    //! Whether the log knows of the file. A new one is told with its first publish, so that a power cut
    //! before it leaves no empty file behind, which DuckDB would refuse to open. True only once the item
    //! that creates it is queued: whoever sees it may queue items about the file.
    bool Published() const { return published_.load(std::memory_order_acquire); }
    bool Removed() const { return removed_.load(std::memory_order_acquire); }
    //! Calls `queue`, which tells the log that the file is gone (or replaced), with Published(), when no
    //! publish is under way. Nothing is published afterwards; when it throws, nothing has changed. Who has
    //! the file open can go on using it.
    void Retire(const std::function<void(bool published)> &queue);
    //! For whoever makes a file with the same contents: nothing is published while this is held.
    std::unique_lock<std::mutex> HoldPublishes() { return std::unique_lock<std::mutex>(publish_mutex_); }
    //! Under HoldPublishes, with everything durable that was queued: prepares for what is published to belong to another
    //! file, too. Nothing is written to it while the result is held; afterwards Space knows what is shared. Throws Error
    //! NO_SPACE: then the file goes on as before.
    std::unique_lock<Gate> BeginSharing();

    //! Gives up what the file covers, for the caller to free once the record that removes it is durable.
    std::vector<Extent> TakeExtents();

    //! Handles that rely on where the durable contents lie: changed under the volume's names mutex.
    std::atomic<uint64_t> in_place{0};
    // Guarded by the volume's names mutex.
    uint64_t handles = 0, writers = 0, shared_locks = 0;
    bool exclusive_lock = false;

  private:
    //! Durable units that were replaced since the last publish: their content lies elsewhere now.
    struct Moved {
        uint64_t units = 0;
        DataChecksum checksum; //!< of a header page: its content, so that it needs no flush of its own
    };

    //! A write that finds no space is tried again, once others have given back what they can. Then a database and its
    //! log may use what is kept for the last.
    enum class Attempt { FIRST, LAST };
    //! Room for what a change may add to the file's metadata. Made under the gate, before the
    //! locks of the map, and gone before the gate is opened.
    class Growth {
      public:
        explicit Growth(File &file, Attempt attempt = Attempt::FIRST) : attempt(attempt), file_(file) {}
        ~Growth();
        Growth(const Growth &) = delete;
        Growth &operator=(const Growth &) = delete;
        //! Throws Error NO_SPACE.
        void Take(const EntrySize &more, MetadataUse use);
        //! False in place of NO_SPACE.
        bool TryTake(const EntrySize &more, MetadataUse use);

        const Attempt attempt;

      private:
        File &file_;
        EntrySize taken_;
        bool any_ = false;
    };
    EntrySize SizeOfEntry() const;
    EntrySize MoreExtents(uint64_t count) const;
    void TakeOver(const CatalogEntry &entry);
    uint64_t TailRoom(uint64_t size) const;

    // file_read.cpp
    void ReadDevice(char *data, uint64_t length, uint64_t offset) const;
    void ReadUnaligned(char *data, uint64_t length, uint64_t offset) const;
    //! Where a range lies: segments without data, or with it.
    std::vector<Segment> Places(uint64_t length, uint64_t offset) const;
    std::vector<Segment> Segments(char *data, uint64_t length, uint64_t offset) const;
    void RequireNotOverwritten(const std::vector<Segment> &segments, uint64_t offset) const;

    // file_write.cpp
    void CountChange() { content_version_.fetch_add(1, std::memory_order_release); }
    void WriteOnce(const char *data, uint64_t length, uint64_t offset, Attempt attempt);
    void FinishRemoval();
    void ReserveForWrite(Growth &growth, uint64_t offset, uint64_t end, bool adds_hole);
    bool TryWriteAligned(const char *data, uint64_t length, uint64_t offset, Attempt attempt);
    void WriteGated(const char *data, uint64_t length, uint64_t offset, Attempt attempt);
    void WriteDevice(const char *data, uint64_t length, uint64_t offset);
    uint64_t DurableBytes(uint64_t offset, uint64_t length) const;
    void WriteOutOfPlace(const char *data, uint64_t length, uint64_t offset, Growth &growth);
    void SwitchTo(const std::vector<Extent> &fresh, const Moved &moved);
    void RemoveHoles(uint64_t offset, uint64_t length);
    void OverwriteDevice(const char *data, uint64_t length, uint64_t offset, Growth &growth);
    void MergeUnaligned(const char *data, uint64_t length, uint64_t offset);
    void ReplacePart(const char *data, uint64_t length, uint64_t offset, Growth &growth);
    void AppendGated(const char *data, uint64_t length);
    void ExtendTo(uint64_t offset);
    void DrainTail();

    // file_space.cpp
    void MakeSpace();
    bool MayUseLast(Attempt attempt) const;
    SpaceUse LastUse() const;
    Space::Piece GrowthFor(uint64_t missing);
    Space::Piece LastFor(uint64_t missing, Growth &growth, bool lacks_metadata);
    void EnsureUnits(uint64_t units, Growth &growth);
    std::vector<Extent> AllocateOutOfPlace(uint64_t first_unit, uint64_t units, Growth &growth);

    // file_copy.cpp
    void CopyTo(const Extent &fresh, uint64_t valid);
    bool IsMovable(const Extent &place) const;

    // file_sharing.cpp
    void OwnEnd(Growth &growth);
    void AddNotShared(const Extent &extent, std::vector<DeviceRange> &ranges) const;

    // file_publish.cpp
    uint64_t QueuePublish();
    std::vector<Segment> TailWrites(std::vector<Item> &items, uint64_t whole);
    void CommitGated(uint64_t ticket);
    void FinishCommit();
    void RequireTail() const;
    bool AddMoved(std::vector<Item> &items) const;
    void AddExtents(std::vector<Item> &items) const;
    bool AddSize(std::vector<Item> &items, const std::string &tail) const;
    uint64_t QueueTruncate(uint64_t size, AlignedBuffer rest);
    void TruncateUnlogged(uint64_t size, AlignedBuffer rest);
    AlignedBuffer TailOf(uint64_t size) const;
    std::vector<Extent> TakeUnitsFrom(uint64_t units);

    const FileContext context_;
    const uint64_t id_;
    const FileKind kind_;
    const int64_t created_us_;
    const bool snapshot_;

    mutable std::mutex name_mutex_; //!< guards name_; the lock of metadata_ is taken under it
    std::string name_;
    FileMetadata metadata_;
    //! There is room for the longest tail, whatever the size: commits end anywhere in an LBA, and a log that
    //! is there always has room for them.
    bool any_tail_fits_ = false;

    //! Orders publishes; held during I/O where what was queued has to be durable first. Guards what the log
    //! has been told. Taken under names_mutex when the file is removed or replaced.
    std::mutex publish_mutex_;
    //! Guards the tail, and space from being freed while commands to it are in flight. Held during I/O.
    mutable Gate gate_;
    //! Guards map_, holes_, moved_ and replaced_. Not held during I/O, but a file that grows waits under it
    //! for space that is being deallocated. name_mutex_ and the locks of the log, of the free space and of
    //! metadata_ are taken under it.
    mutable std::shared_mutex map_mutex_;
    ExtentMap map_;
    HoleSet holes_;
    std::atomic<bool> has_holes_{false};
    bool holes_dirty_ = false; //!< guarded by map_mutex_: there were changes; the list may be as it was

    std::atomic<uint64_t> size_{0};
    std::atomic<uint64_t> content_version_{0};
    std::atomic<int64_t> modified_us_{0};
    uint64_t tail_start_ = 0;  //!< guarded by gate_
    AlignedBuffer tail_;       //!< guarded by gate_
    uint64_t tail_queued_ = 0; //!< guarded by gate_: bytes of the tail that the log is to write
    //! The ticket of a commit that must be done before anything is appended or the tail changes; 0 when there
    //! is none. Set under publish_mutex_ and the gate.
    std::atomic<uint64_t> commit_first_{0};
    std::map<uint64_t, Moved> moved_; //!< by file unit
    //! Space that the log still refers to and the file does not: the old places of moved units, and what was
    //! cut off. Freed with the next publish.
    std::vector<Extent> replaced_;
    //! There is data on the target that no flush and no DATA_CHECKSUM covers. Set before anything else refers
    //! to that data.
    std::atomic<bool> unflushed_{false};
    //! Others may have some of what the file has. Set under the gate, before they have; it stays.
    std::atomic<bool> sharing_{false};

    // What the log has been told, guarded by publish_mutex_ (durable_size_ is also read under the gate).
    std::atomic<bool> published_;
    std::atomic<uint64_t> durable_size_{0};
    uint64_t durable_units_ = 0;
    std::vector<Hole> durable_holes_;
    std::string durable_tail_; //!< compared with, since bytes behind the last whole LBA change in many ways
    std::atomic<bool> removed_{false};
};

} // namespace rawduck
