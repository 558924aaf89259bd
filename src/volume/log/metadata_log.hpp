//! The writer of the metadata log. Items of all files go into one pending record in the order in which they
//! are queued; whoever commits first writes the record for everyone who queued by then (group commit).
//!
//! Invariants:
//!  - One record is in flight at a time, and it is durable before the next one is written.
//!  - Data that a record publishes is durable before the record is written, or covered by a DATA_CHECKSUM
//!    item and in flight together with it.
//!  - The first record of a mount starts a new epoch: a snapshot in the other metadata area.
//!  - Freed space is handed back only when the record that frees it is durable.
//!  - A failed write or flush poisons the log for good. Running out of memory does not: what was queued stays
//!    queued.
#pragma once

#include "io/block_io.hpp"
#include "volume/log/catalog.hpp"
#include "volume/log/volume_image.hpp"

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

    //! Continues from the state that a mount has read. `free_extents` is called, without the log's locks
    //! held, with what became free, and does not throw.
    MetadataLog(BlockIo &io, const VolumeImage &image, FreeFunction free_extents);

    //! What the items publish that was written before and may still lie in the device's cache.
    enum class Cached {
        NOTHING,
        CHECKSUMMED,    //!< covered by DATA_CHECKSUM items: one flush behind the record is enough
        NOT_CHECKSUMMED //!< flushed before the record
    };

    //! Adds items to the pending record and returns the ticket to commit. `freed` becomes free with the
    //! record. `writes`: data that DATA_CHECKSUM items cover and that is not written yet; it is written
    //! together with the record, from the caller's memory, which must not change until Commit has returned or
    //! thrown. Room for what the items add to a snapshot has been reserved before (MetadataRoom). When it
    //! throws (POISONED, or memory is out), nothing was queued.
    uint64_t Queue(std::vector<Item> items, std::vector<Extent> freed = {}, Cached cached = Cached::NOTHING,
                   std::vector<Segment> writes = {});

    //! Returns once everything up to the ticket is durable. Throws Error POISONED, or std::bad_alloc: then it
    //! is not durable yet, and the next Commit of anybody writes it, `writes` from the same memory.
    void Commit(uint64_t ticket);

    //! Call before bytes on the target are overwritten or discarded: a record whose DATA_CHECKSUM items cover
    //! them must have a successor first, or the next mount would take the new bytes for a torn write.
    void BeforeOverwrite(uint64_t device_offset, uint64_t length);

    //! Whether what lies on the target is what this mount has found or written. Only while nobody writes.
    bool IsUnchanged();

    //! Empty while healthy.
    std::string Poisoned() const;
    void Poison(const std::string &reason);

    uint64_t Epoch() const;
    uint64_t LogBytes() const;
    uint64_t LogRecords() const;

  private:
    struct Group {
        std::vector<Item> items;
        std::vector<Extent> freed;
        std::vector<Segment> writes;
        Cached cached = Cached::NOTHING;
        size_t applied = 0; //!< number of items that are in the catalog already
    };
    enum class Outcome { DURABLE, OUT_OF_MEMORY, FAILED };
    Outcome TryWriteCurrent(std::string &failure);
    void Write(Group &group);
    void WriteRecord(const std::string &payload, const Group &group);
    void WriteDurably(std::vector<Segment> segments, bool flush);
    void StartEpoch();
    Superblock WriteSnapshot();
    void WriteSuperblock(int copy);
    void ApplyToCatalog(Group &group);
    void RememberChecksums(std::vector<DataChecksum> checksums);
    void ThrowIfPoisoned() const;

    BlockIo &io_;
    Superblock superblock_;
    std::unique_ptr<Catalog> catalog_; //!< touched only by the thread that writes
    FreeFunction free_extents_;
    const int spare_superblock_;   //!< the copy that this mount did not read: it is written first
    const bool superblocks_agree_; //!< at mount
    bool started_ = false;         //!< this mount has begun an epoch
    bool epoch_under_way_ =
        false;          //!< superblock_ is of the next epoch, and copies of it may be on the target
    uint64_t position_; //!< bytes behind LogStart, of the epoch that is on the target

    //! Guards what follows up to the counters, except where said. Not held while a record is written; no
    //! other lock is taken under it.
    mutable std::mutex mutex_;
    //! Who waits for a ticket, by whether it is even: the group that is being written, and the one behind it.
    std::condition_variable written_[2];
    Group current_;           //!< touched only by the thread that writes
    bool unfinished_ = false; //!< current_ is being written, or is yet to be when memory was out
    Group pending_;
    uint64_t next_ticket_ = 1; //!< of the pending group
    uint64_t durable_ticket_ = 0;
    bool writing_ = false;
    std::string poisoned_;
    std::atomic<uint64_t> epoch_{0}, log_bytes_{0}, log_records_{0};

    std::mutex checksums_mutex_; //!< guards last_checksums_; no other lock is taken under it
    std::atomic<bool> has_checksums_{false};
    std::vector<DataChecksum> last_checksums_; //!< of the last record
};

} // namespace rawduck
