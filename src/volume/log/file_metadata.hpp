//! The room for metadata that one file holds.
#pragma once

#include "volume/log/entry_size.hpp"
#include "volume/log/metadata_room.hpp"

namespace rawduck {

//! Room for the metadata as published or as it is now, whichever is longer, and for what running changes may add.
//! Thread-safe.
class FileMetadata {
  public:
    explicit FileMetadata(MetadataRoom &room) : room_(room) {}
    ~FileMetadata() { Give(held_); }
    FileMetadata(const FileMetadata &) = delete;
    FileMetadata &operator=(const FileMetadata &) = delete;

    //! For a new file. Throws Error NO_SPACE.
    void Begin(const EntrySize &size);
    void BeginLog(const EntrySize &size);
    //! For a file that a mount has found.
    void BeginFound(const EntrySize &size);
    //! For a log that a mount has found, and that is to have room as a new one. False when there is none.
    bool TryExtendLog(const EntrySize &size);
    //! Call before a change that may add so much. Throws Error NO_SPACE.
    void Take(const EntrySize &more, MetadataUse use);
    //! Call after a change that took `taken`: this is the size now.
    void Settle(const EntrySize &taken, const EntrySize &now);
    //! Call when this was published.
    void Published(const EntrySize &now);
    //! Call when a change that took `taken` was not made.
    void GiveBack(const EntrySize &taken);
    //! Call when another name was published, for which `taken` was taken if it is longer.
    void Renamed(const EntrySize &taken, uint64_t name_bytes);
    //! Call when the removal of the file was queued.
    void Retire();

  private:
    uint64_t Needed() const;
    bool TryTakeForLog(uint64_t needed);
    void GiveSurplus();
    void Give(uint64_t bytes);

    MetadataRoom &room_;
    std::mutex
        mutex_; //!< guards what follows; the locks of the room and of the free space are taken under it
    EntrySize now_, published_, under_way_;
    uint64_t held_ = 0;     //!< bytes
    uint64_t for_logs_ = 0; //!< how much of it is from what is kept for logs
    bool retired_ = false;
};

} // namespace rawduck
