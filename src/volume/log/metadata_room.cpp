#include "volume/log/metadata_room.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"

#include <algorithm>

namespace rawduck {

namespace {

//! What each kind of use leaves to the next: a share of the room, at least what a file takes when its extents get a
//! tree of their own, and at most this many bytes.
constexpr uint64_t KEPT_SHARE = 16;
constexpr uint64_t LAST_LOG_BYTES = 4 * KIB;      //!< for the last extents of some logs
constexpr uint64_t LAST_REPLACED_BYTES = 4 * KIB; //!< for what a checkpoint replaces
constexpr uint64_t KEPT_BYTES_MIN = TREE_PAGE_BYTES + LAST_LOG_BYTES, KEPT_BYTES_MAX = 4 * MIB;
//! For creating logs: a share of the volume, and at least room for some.
constexpr uint64_t NEW_LOG_SHARE = 256;
constexpr uint64_t NEW_LOG_BYTES_MIN = 48 * KIB, NEW_LOG_BYTES_MAX = 4 * MIB;
//! New files leave so much space to what is in the others.
constexpr uint64_t CREATE_SHARE = 4;
constexpr uint64_t CREATE_UNITS_MAX = 16 * MIB / ALLOCATION_UNIT_BYTES;

//! Checkpoints that pages may belong to at a time: the durable one, the next, and the one after it.
constexpr uint64_t CHECKPOINTS = 3;
//! The trees of names, files, tails and references have at least a page each.
constexpr uint64_t TREES = 4;
//! Taken by one change to a tree beyond what the tree has afterwards, and by making room for the map of pages.
constexpr uint64_t PAGES_UNDER_WAY = 12;
//! Pages above the leaves: one for at least so many.
constexpr uint64_t FAN_OUT_MIN = 24;
//! Of the map of pages, for each zone.
constexpr uint64_t ZONE_MAP_BYTES = 16;

//! Bitmaps in pages that are half full.
uint64_t SpacePages(const SpaceMap::Area &area) {
    constexpr uint64_t MAPS_PER_PAGE = TREE_PAGE_BYTES / (2 * SpaceMap::BYTES) - 1;
    const uint64_t maps = DivideUp(area.Groups(), MAPS_PER_PAGE);
    return maps + DivideUp(maps, FAN_OUT_MIN) - 1 + DivideUp(maps, 64);
}

//! Bytes that are reserved for creating logs.
uint64_t BytesForLogs(const SpaceMap::Area &area) {
    return std::clamp((area.end - area.start) * ALLOCATION_UNIT_BYTES / NEW_LOG_SHARE, NEW_LOG_BYTES_MIN,
                      NEW_LOG_BYTES_MAX);
}

//! From this use, where each kind leaves `each` to the next.
uint64_t KeptBytes(MetadataUse use, uint64_t each) {
    switch (use) {
    case MetadataUse::CREATE:
        return 3 * each;
    case MetadataUse::GROW:
        return 2 * each;
    case MetadataUse::LOG:
        return each;
    case MetadataUse::LAST_LOG:
        return each - LAST_LOG_BYTES;
    case MetadataUse::LAST_CONTENT:
        return LAST_REPLACED_BYTES;
    default:
        return 0;
    }
}

} // namespace

MetadataRoom::MetadataRoom(Space &space, ZoneStock &stock, const SpaceMap::Area &area, uint64_t zones,
                           std::string target_name)
    : space_(space), stock_(stock), target_name_(std::move(target_name)), space_pages_(SpacePages(area)),
      for_logs_(BytesForLogs(area)), zones_(zones) {}

//! What the files may have when there are so many zones.
uint64_t MetadataRoom::BytesIn(uint64_t zones) const {
    const uint64_t map_pages = zones * ZONE_MAP_BYTES / TREE_PAGE_BYTES + 1;
    const uint64_t pages = (zones * ZONE_PAGES - std::min(zones * ZONE_PAGES, PAGES_UNDER_WAY)) / CHECKPOINTS;
    const uint64_t others = space_pages_ + TREES + map_pages;
    const uint64_t leaves = (pages - std::min(pages, others)) * FAN_OUT_MIN / (FAN_OUT_MIN + 1);
    const uint64_t bytes = leaves * TreePage::ROOM_BYTES;
    return bytes - std::min(bytes, for_logs_);
}

uint64_t MetadataRoom::Limit(MetadataUse use, uint64_t zones) const {
    const uint64_t all = BytesIn(zones);
    const uint64_t kept = KeptBytes(use, std::clamp(all / KEPT_SHARE, KEPT_BYTES_MIN, KEPT_BYTES_MAX));
    return all - std::min(all, kept);
}

uint64_t MetadataRoom::ZonesFor(uint64_t bytes, MetadataUse use) const {
    uint64_t low = 1, high = 2;
    while (Limit(use, high) < bytes) {
        high *= 2;
    }
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        Limit(use, middle) < bytes ? low = middle + 1 : high = middle;
    }
    return low;
}

uint64_t MetadataRoom::KeptUnits(MetadataUse use) const {
    switch (use) {
    case MetadataUse::CREATE:
        return std::max(space_.KeptUnits(SpaceUse::CONTENT),
                        std::min(space_.TotalUnits() / CREATE_SHARE, CREATE_UNITS_MAX));
    case MetadataUse::GROW:
        return space_.KeptUnits(SpaceUse::CONTENT);
    case MetadataUse::LOG:
    case MetadataUse::LAST_LOG:
    case MetadataUse::LAST_CONTENT: // a zone is as large as four of the blocks that are kept for a checkpoint
        return space_.KeptUnits(SpaceUse::LOG);
    default:
        return space_.KeptUnits(SpaceUse::REPLACEMENT);
    }
}

bool MetadataRoom::AddZone(uint64_t keep_units) {
    const bool added = stock_.Add([&] { return space_.TakeZone(keep_units, true); });
    std::lock_guard<std::mutex> guard(mutex_);
    zones_ += added ? 1 : 0;
    return added;
}

bool MetadataRoom::TryTake(uint64_t bytes, MetadataUse use) {
    for (;;) {
        {
            std::lock_guard<std::mutex> guard(mutex_);
            if (bytes == 0 || taken_ + bytes <= Limit(use, zones_)) {
                taken_ += bytes;
                most_[0] = std::max(most_[0], taken_);
                return true;
            }
        }
        if (!AddZone(KeptUnits(use))) {
            std::lock_guard<std::mutex> guard(mutex_);
            refused_ = true;
            return false;
        }
    }
}

void MetadataRoom::Take(uint64_t bytes, MetadataUse use) {
    if (!TryTake(bytes, use)) {
        throw Error(
            ErrorCode::NO_SPACE,
            target_name_ + ": the volume is full: there is no space for more metadata, of which it has " +
                std::to_string(HeldZones()) +
                " MiB, since the rest is kept for commits to the files that are there; remove files, store "
                "the same in fewer and larger ones, or enlarge the volume (nvme_grow)");
    }
}

void MetadataRoom::TakeFound(uint64_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    taken_ += bytes;
    most_[0] = std::max(most_[0], taken_);
}

// Where there are fewer than before, files can be removed, and what needs more is refused. What there is must be published,
// whatever is kept; for more, nothing is taken that dropping a table and a checkpoint need.
void MetadataRoom::TakeFoundZones() {
    TakeZonesFor(MetadataUse::REPLACE, 0);
    TakeZonesFor(MetadataUse::CREATE, space_.KeptUnits(SpaceUse::CONTENT));
}

void MetadataRoom::TakeZonesFor(MetadataUse use, uint64_t keep_units) {
    uint64_t missing = 0;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        const uint64_t needed = ZonesFor(taken_, use);
        missing = needed - std::min(needed, zones_);
    }
    while (missing > 0 && AddZone(keep_units)) {
        missing--;
    }
}

bool MetadataRoom::CheckpointMayHelp() {
    std::unique_lock<std::mutex> guard(mutex_);
    const bool refused = refused_;
    refused_ = false;
    guard.unlock();
    return refused && space_.AwaitsCheckpoint();
}

void MetadataRoom::Give(uint64_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    RAWDUCK_INVARIANT(bytes <= taken_, "no more room for metadata is given back than was taken");
    taken_ -= bytes;
}

void MetadataRoom::Grow(const SpaceMap::Area &area) {
    {
        std::lock_guard<std::mutex> guard(mutex_);
        space_pages_ = SpacePages(area);
        for_logs_ = BytesForLogs(area);
    }
    TakeFoundZones();
}

bool MetadataRoom::TryTakeForLogs(uint64_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    const bool there = taken_for_logs_ + bytes <= for_logs_;
    taken_for_logs_ += there ? bytes : 0;
    return there;
}

void MetadataRoom::GiveForLogs(uint64_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    RAWDUCK_INVARIANT(bytes <= taken_for_logs_, "no more room for logs is given back than was taken");
    taken_for_logs_ -= bytes;
}

uint64_t MetadataRoom::HeldZones() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return zones_;
}

// Whatever is kept: without a page nothing can be published any more.
uint64_t MetadataRoom::TakeZone() {
    const uint64_t zone = space_.TakeZone(0, false);
    std::lock_guard<std::mutex> guard(mutex_);
    zones_ += zone != 0 ? 1 : 0;
    return zone;
}

void MetadataRoom::GiveZone(uint64_t start) {
    space_.Free({Extent{0, start, ZONE_UNITS}});
    std::lock_guard<std::mutex> guard(mutex_);
    RAWDUCK_INVARIANT(zones_ > 0, "a zone that goes back was taken");
    zones_--;
}

void MetadataRoom::CheckpointBegins() {
    space_.CheckpointBegins();
    std::lock_guard<std::mutex> guard(mutex_);
    most_[2] = most_[1];
    most_[1] = most_[0];
    most_[0] = taken_;
}

void MetadataRoom::CheckpointIsDurable(uint64_t pages) {
    space_.CheckpointIsDurable();
    std::lock_guard<std::mutex> guard(mutex_);
    durable_pages_ = pages;
}

// Pages may be less full than is thought.
uint64_t MetadataRoom::SpareZones() const {
    std::lock_guard<std::mutex> guard(mutex_);
    const uint64_t most = std::max(std::max(most_[0], most_[1]), most_[2]);
    const uint64_t by_pages = DivideUp(CHECKPOINTS * durable_pages_ + PAGES_UNDER_WAY, ZONE_PAGES);
    const uint64_t needed = std::max(ZonesFor(most, MetadataUse::CREATE), by_pages);
    return zones_ - std::min(zones_, needed);
}

} // namespace rawduck
