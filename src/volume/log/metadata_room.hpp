//! Keeps space for metadata pages. A Sync that cannot publish what was written would lose it, so what a file's
//! metadata needs is reserved in advance: when the file is created, and before each write that may enlarge it.
//!
//! Invariants:
//!  - What all files hold is at least what the trees need for what the files have told the log.
//!  - There are zones for that three times over, as far as the volume had them when it was mounted: while a
//!    checkpoint is written there are the pages of the durable one, of that one, and those that changed since.
#pragma once

#include "volume/journal/journal.hpp"
#include "volume/space/space.hpp"

namespace rawduck {

//! What the room is used for; each use may take what is kept from those before it. So when the volume is full,
//! existing files can still grow, commits reach their logs, and blocks can be replaced. Creating logs has a
//! reserve of its own, and uses the common room when that is full, so logs and other files do not starve each
//! other. LAST_LOG and LAST_CONTENT: for what gets what is kept for the last (Space::AllocateLast), which is little: a log has a
//! little more than LOG, the blocks of a checkpoint nearly all.
enum class MetadataUse { CREATE, GROW, LOG, LAST_LOG, LAST_CONTENT, REPLACE };

//! Thread-safe. Bytes are those of MetadataBytes.
class MetadataRoom : public Journal::Zones {
  public:
    //! `stock`: where zones go that no pages lie in yet. `zones`: that the mount has found pages in.
    MetadataRoom(Space &space, ZoneStock &stock, const SpaceMap::Area &area, uint64_t zones,
                 std::string target_name);

    //! Throws Error NO_SPACE, with what can be done about it.
    void Take(uint64_t bytes, MetadataUse use);
    bool TryTake(uint64_t bytes, MetadataUse use);
    //! For what a mount has found: it exists, whatever the limits are.
    void TakeFound(uint64_t bytes);
    //! After the last TakeFound: takes zones for it.
    void TakeFoundZones();
    void Give(uint64_t bytes);
    //! The data area has become that: takes zones for the metadata of its free space, too. After Space::Grow.
    void Grow(const SpaceMap::Area &area);

    //! The part that is reserved for creating logs.
    bool TryTakeForLogs(uint64_t bytes);
    void GiveForLogs(uint64_t bytes);

    //! Whether something was refused since the last call that another checkpoint may make room for.
    bool CheckpointMayHelp();

    //! Of metadata pages, or kept for them.
    uint64_t HeldZones() const;

    // Journal::Zones: for pages, when the stock is empty.
    uint64_t TakeZone() override;
    void GiveZone(uint64_t start) override;
    uint64_t SpareZones() const override;
    void CheckpointBegins() override;
    void CheckpointIsDurable(uint64_t pages) override;

  private:
    uint64_t Limit(MetadataUse use, uint64_t zones) const;
    uint64_t BytesIn(uint64_t zones) const;
    uint64_t ZonesFor(uint64_t bytes, MetadataUse use) const;
    uint64_t KeptUnits(MetadataUse use) const;
    bool AddZone(uint64_t keep_units);
    void TakeZonesFor(MetadataUse use, uint64_t keep_units);

    Space &space_;
    ZoneStock &stock_;
    const std::string target_name_;
    mutable std::mutex mutex_; //!< guards what follows; no other lock is taken under it
    uint64_t space_pages_;     //!< that the bitmaps and summaries of free space need
    uint64_t for_logs_;        //!< bytes
    uint64_t taken_ = 0, taken_for_logs_ = 0;
    uint64_t zones_;
    bool refused_ = false;
    //! The most that was taken since a checkpoint began, and between those before: trees may be as large until the
    //! third checkpoint from then on is durable, which includes what was queued, and was not in the trees yet.
    uint64_t most_[3] = {};
    uint64_t durable_pages_ = 0; //!< of the last checkpoint
};

} // namespace rawduck
