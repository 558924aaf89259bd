//! Reserves space in a metadata area. A Sync that cannot publish what was written would lose it, so the space
//! for a file's entry in a snapshot is reserved in advance: when the file is created, and before each write
//! that may enlarge the entry.
//!
//! Invariants:
//!  - What all files hold is at least as long as any snapshot of what they have told the log.
//!  - It never exceeds the limit, behind which the log has its space.
#pragma once

#include "common/invariant.hpp"
#include "volume/format/superblock.hpp"

#include <cstdint>
#include <mutex>
#include <string>

namespace rawduck {

//! What the room is used for; each use may take what is reserved from those before it. So when the area is
//! full, existing files can still grow, their blocks can be replaced, and commits reach their logs. Creating
//! logs has a reserve of its own, and uses the common room when that is full, so logs and other files do not
//! starve each other.
enum class MetadataUse { CREATE, GROW, REPLACE, LOG };

//! Thread-safe.
class MetadataRoom {
  public:
    MetadataRoom(const Superblock &superblock, std::string target_name);

    //! Throws Error NO_SPACE, with what can be done about it.
    void Take(uint64_t bytes, MetadataUse use);
    bool TryTake(uint64_t bytes, MetadataUse use);
    //! For what a mount has found: it exists, whatever the limits are.
    void TakeFound(uint64_t bytes);
    void Give(uint64_t bytes);
    uint64_t Taken() const;

    //! The part that is reserved for creating logs.
    bool TryTakeForLogs(uint64_t bytes);
    void GiveForLogs(uint64_t bytes);

  private:
    uint64_t Limit(MetadataUse use) const;

    const std::string target_name_;
    const std::string advice_;
    const uint64_t for_logs_;  //!< bytes
    const uint64_t limit_;     //!< bytes of the rest
    mutable std::mutex mutex_; //!< guards what follows; no other lock is taken under it
    uint64_t taken_ = 0, taken_for_logs_ = 0;
};

//! The room that one file holds: for its entry in a snapshot, as published or as it is now, whichever is
//! longer, and for what running changes may add.
class FileMetadata {
  public:
    explicit FileMetadata(MetadataRoom &room) : room_(room) {}
    ~FileMetadata() { Give(held_); }
    FileMetadata(const FileMetadata &) = delete;
    FileMetadata &operator=(const FileMetadata &) = delete;

    //! For a new file. Throws Error NO_SPACE.
    void Begin(uint64_t bytes);
    void BeginLog(uint64_t bytes);
    //! For a file that a mount has found.
    void BeginFound(uint64_t bytes);
    //! For a log that a mount has found: takes the additional room of a new log. False when there is none.
    bool TryExtendLog(uint64_t bytes);
    //! Call before a change that may enlarge the entry by up to this many bytes. Throws Error NO_SPACE.
    void Take(uint64_t bytes, MetadataUse use);
    //! Call after a change that took `taken` bytes: the entry has the length `now`.
    void Settle(uint64_t taken, uint64_t now);
    //! Call when an entry of this length was published.
    void Published(uint64_t now);
    //! Call when a change that took `taken` bytes was not made.
    void GiveBack(uint64_t taken);
    //! Call when another name was published, for which `taken` was taken if the entry is longer with it.
    void Renamed(uint64_t taken, uint64_t length_before, uint64_t length);
    //! Call when the removal of the file was queued.
    void Retire();

  private:
    void Give(uint64_t bytes);

    MetadataRoom &room_;
    std::mutex mutex_;                                  //!< guards what follows; the room's is taken under it
    uint64_t held_ = 0, under_way_ = 0, published_ = 0; //!< bytes
    uint64_t for_logs_ = 0;                             //!< how much of held_ is from what is kept for logs
    bool retired_ = false;
};

} // namespace rawduck
