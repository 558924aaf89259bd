//! The writer of the metadata log. Items of all files go into one pending record in the order in which they
//! are queued; whoever commits first writes the record for everyone who queued by then (group commit).
//!
//! Invariants:
//!  - Data that a record publishes is durable before the record is written, or covered by a DATA_CHECKSUM
//!    item and in flight together with it.
//!  - Freed space is handed back only when the record that frees it is durable.
//!  - A failed write or flush, of a checkpoint too, poisons the log for good. Running out of memory does not:
//!    what was queued stays queued.
#pragma once

#include "volume/journal/journal.hpp"
#include "volume/log/checkpoint_writer.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace rawduck {

//! Thread-safe.
class MetadataLog {
  public:
    using FreeFunction = std::function<void(const std::vector<Extent> &)>;

    //! Continues from the state that a mount has read, into its trees. `free_extents` is called, without the log's
    //! locks held, with what became free, and does not throw.
    MetadataLog(BlockIo &io, const JournalImage &image, MetadataTrees &trees, Journal::Zones &zones,
                FreeFunction free_extents);
    ~MetadataLog();

    using Cached = JournalRecord::Cached;

    //! Call before anything is written to the volume, data of files included, and when nothing is queued: see
    //! Journal::Begin. Throws as it does.
    void Begin();

    //! Adds items to the pending record and returns the ticket to commit. `freed` becomes free with the
    //! record. `writes`: data that DATA_CHECKSUM items cover and that is not written yet; it is written
    //! together with the record, from the caller's memory, which must not change until Commit has returned or
    //! thrown. Room for what the items add has been reserved before (MetadataRoom). When it
    //! throws (POISONED, or memory is out), nothing was queued.
    uint64_t Queue(std::vector<Item> items, std::vector<Extent> freed = {}, Cached cached = Cached::NOTHING,
                   std::vector<Segment> writes = {});

    //! Returns once everything up to the ticket is durable. Throws Error POISONED, or std::bad_alloc: then it
    //! is not durable yet, and the next Commit of anybody writes it, `writes` from the same memory.
    void Commit(uint64_t ticket);

    //! Makes a checkpoint, and what was queued durable. Throws as Commit.
    void Checkpoint();
    //! Makes the volume so many allocation units large: durable on return. Commits go on meanwhile. Throws as Commit, and
    //! Error NO_SPACE: then nothing has changed.
    void Grow(uint64_t capacity_units);
    //! Waits until no checkpoint is being written: then nothing is written but what is asked for. Throws as Commit.
    void FinishCheckpoint();

    //! What was committed last gets a successor, so that the next mount does not look at its data: data that is damaged after
    //! that is not taken for a commit that was cut off, which would be dropped. Throws as Commit.
    void Settle();
    //! Call before bytes on the target are overwritten or discarded: a record whose DATA_CHECKSUM items cover
    //! them must have a successor first, or the next mount would take the new bytes for a torn write.
    void BeforeOverwrite(uint64_t device_offset, uint64_t length);

    //! Whether what lies on the target is what this mount has found or written. Only while nobody writes.
    bool IsUnchanged();

    //! Empty while healthy.
    std::string Poisoned() const;
    void Poison(const std::string &reason);

    uint64_t Epoch() const { return journal_.Epoch(); }
    uint64_t LogBytes() const { return journal_.LogBytes(); }
    uint64_t LogRecords() const { return journal_.LogRecords(); }
    bool CheckpointPending() const { return journal_.CheckpointPending(); }

  private:
    struct Group {
        JournalRecord record;
        std::vector<Extent> freed;
    };
    enum class Outcome { DURABLE, OUT_OF_MEMORY, FAILED };
    Outcome TryWriteCurrent(std::string &failure);
    Outcome Try(const std::function<void()> &action, std::string &failure);
    void RunAlone(const std::function<void()> &action);
    void Write();
    bool WritePendingCheckpoint();
    void RememberChecksums(std::vector<DataChecksum> checksums);
    void ThrowIfPoisoned() const;

    BlockIo &io_;
    Journal journal_; //!< appended to only by the thread that writes
    FreeFunction free_extents_;

    //! Guards what follows up to checksums_mutex_, except where said. Not held while a record is written; no
    //! other lock is taken under it.
    mutable std::mutex mutex_;
    //! Who waits for a ticket, by whether it is even: the group that is being written, and the one behind it.
    std::condition_variable written_[2];
    std::condition_variable idle_;
    Group current_;           //!< touched only by the thread that writes
    bool unfinished_ = false; //!< current_ is being written, or is yet to be when memory was out
    Group pending_;
    uint64_t next_ticket_ = 1; //!< of the pending group
    uint64_t durable_ticket_ = 0;
    bool writing_ = false;
    std::string poisoned_;

    std::mutex checksums_mutex_; //!< guards last_checksums_; no other lock is taken under it
    std::atomic<bool> has_checksums_{false};
    std::vector<DataChecksum> last_checksums_; //!< of the last record

    CheckpointWriter checkpoints_; //!< last: its thread uses what comes before
};

} // namespace rawduck
