//! Writes the metadata of a volume of format 2: a record of the log for each commit, and checkpoints of the trees.
//!
//! Invariants:
//!  - One record is in flight at a time, and it is durable before the next one is written.
//!  - A checkpoint is of the state between two records, both of which it knows the places of.
//!  - A superblock is written only after everything that it names is durable, and one copy only after the other.
//!  - What the superblocks before named (pages, an area of the log) is given up only after both copies are durable.
//!  - What items need that older code does not know is in both superblocks before they are in the log.
//!  - While the target is larger than the volume, a superblock is at its end, too, before superblock 0 is written.
//!  - A volume that grows gets its second superblock at its new end before its first one tells of it, and both are durable
//!    before the old place is given up, and before anything is put into what it gains.
//!  - No mount uses an epoch or a generation that another mount may have used: superblocks that count the mount are
//!    durable before it writes anything else.
#pragma once

#include "io/block_io.hpp"
#include "volume/journal/journal_image.hpp"
#include "volume/journal/metadata_trees.hpp"

#include <atomic>
#include <mutex>
#include <optional>

namespace rawduck {

//! What a record publishes.
struct JournalRecord {
    //! What the items publish that was written before and may still lie in the device's cache.
    enum class Cached {
        NOTHING,
        CHECKSUMMED,    //!< covered by DATA_CHECKSUM items: one flush behind the record is enough
        NOT_CHECKSUMMED //!< flushed before the record
    };
    std::vector<Item> items;
    Cached cached = Cached::NOTHING;
    std::vector<Segment> writes; //!< data that DATA_CHECKSUM items cover, written together with the record
};

class Journal {
  public:
    //! Where pages get zones of free space from. Does not throw; takes no lock that is held during I/O.
    class Zones {
      public:
        virtual ~Zones() = default;
        //! 0 when there is none.
        virtual uint64_t TakeZone() = 0;
        //! Of what TakeZone has returned, or the mount has found.
        virtual void GiveZone(uint64_t start) = 0;
        //! How many zones there are that need not be kept for pages.
        virtual uint64_t SpareZones() const = 0;
        //! A checkpoint has begun, or is durable, with so many pages.
        virtual void CheckpointBegins() = 0;
        virtual void CheckpointIsDurable(uint64_t pages) = 0;
    };

    //! Continues from what a mount has read, which outlives this.
    Journal(BlockIo &io, const JournalImage &image, MetadataTrees &trees, Zones &zones);

    //! Call before anything is written to the volume, data of files included: what the mount has found may be in the
    //! device's cache only, if the process before was killed, and space that is free by it is not free without it.
    //! By the thread that appends; again, it does nothing. Throws as Append.
    void Begin();

    //! Makes a record durable and applies it to the trees. By one thread at a time. Space that it frees may be used
    //! afterwards. Throws Error; then nothing more can be appended. Or
    //! std::bad_alloc: then the same record is to be appended again. Returns whether a record was written, whose
    //! DATA_CHECKSUM items a mount will examine unless another follows.
    bool Append(const JournalRecord &record);
    //! Makes a checkpoint of what was appended. By the thread that appends. Throws as Append.
    void Checkpoint();

    //! Begins a checkpoint of a volume of so many allocation units, as many as now or more. When it is durable, the
    //! volume has that size; before, nothing may be put into what it gains. By the thread that appends. Throws as
    //! Append, and Error NO_SPACE: then nothing has changed, and this may be called again.
    void BeginGrowth(uint64_t capacity_units);

    //! Whether a checkpoint has begun and is not durable yet. Any thread.
    bool CheckpointPending() const { return has_pending_; }
    //! Writes the checkpoint that is pending. Any thread, beside Append; Append does it itself only where it cannot go
    //! on without. Returns whether there was one. Throws as Append; with std::bad_alloc it is still pending.
    bool WriteCheckpoint();

    //! Whether superblocks and log on the target are those that the mount has found or this has written: nobody else has
    //! written since. By the thread that appends, and not beside it. Throws as ReadJournal.
    bool IsUnchanged();

    uint64_t Epoch() const { return epoch_; }
    //! Of this epoch.
    uint64_t LogBytes() const { return position_; }
    uint64_t LogRecords() const { return records_; }
    //! Since the mount.
    uint64_t Checkpoints() const { return checkpoints_; }

  private:
    struct Pending {
        TreeSuperblock superblock{};
        std::string map;
    };
    void RequireFeatures(const std::vector<Item> &items);
    void RequireRoom(uint64_t footprint);
    void BeginCheckpoint();
    void TakeFrozen(Pending &pending);
    bool RefillZones();
    void ApplyItems(const std::vector<Item> &items);
    void WriteRecord(const JournalRecord &record, const std::string &payload);
    void WriteByCheckpoint(const JournalRecord &record);
    void WriteMap(const Pending &pending);
    void WriteDurably(std::vector<Segment> segments, bool flush);
    uint64_t NextSequence();
    void WriteSuperblocks(TreeSuperblock next);
    void WriteGrownSuperblocks(TreeSuperblock next);
    void WriteCopyAtEnd(const TreeSuperblock &superblock);
    void WriteSuperblockDurablyAt(const TreeSuperblock &superblock, uint64_t unit);
    void GrowTrees(uint64_t capacity_units);
    void WriteSuperblockDurably(const TreeSuperblock &superblock, int copy);
    void Flush();

    BlockIo &io_;
    MetadataTrees &trees_;
    Zones &zones_;
    const int spare_superblock_; //!< the copy that this mount did not read: it is written first
    const uint64_t mount_;
    const size_t found_parts_;    //!< of the log, at mount
    const TreeSuperblock layout_; //!< for what never changes

    // Touched only by the thread that appends.
    bool counted_ = false; //!< superblocks count this mount
    bool started_ = false;
    bool tells_sharing_;      //!< both superblocks say that files may share space
    uint64_t capacity_units_; //!< that the trees are of, and the next checkpoint
    uint32_t epochs_ = 0;     //!< of this mount
    uint32_t area_ = 0;
    LogEnding before_;                               //!< that the epoch continues
    std::atomic<uint64_t> position_{0}, records_{0}; //!< of the epoch; any thread reads them
    bool record_under_way_ = false;                  //!< it has room, and so many items are in the trees
    size_t applied_ = 0;
    bool frozen_with_record_ = false; //!< the checkpoint that is pending publishes it
    std::atomic<uint64_t> epoch_{0}, checkpoints_{0};

    //! One flush after the other: what one of them could not make durable none of those behind it has made so.
    std::mutex flush_mutex_;
    bool flush_failed_ = false; //!< guarded by flush_mutex_

    //! Guards what follows. Held while a checkpoint is written; the mutexes of the store, of flushes and those that
    //! Zones takes are taken under it.
    std::mutex checkpoint_mutex_;
    TreeSuperblock superblock_;  //!< as on the target, when nothing is pending
    uint64_t sequence_used_ = 0; //!< the last number of a superblock that may be on the target
    std::optional<Pending> pending_;
    std::atomic<bool> has_pending_{false};
};

} // namespace rawduck
