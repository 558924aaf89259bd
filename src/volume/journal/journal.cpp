#include "volume/journal/journal.hpp"

#include "common/clock.hpp"
#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "common/invariant.hpp"
#include "common/memory/aligned_buffer.hpp"
#include "volume/journal/load_metadata.hpp"
#include "volume/journal/read_journal.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

//! A record and its data up to this length are written with FUA, more is flushed.
constexpr uint64_t FUA_BYTES_MAX = 64 * KIB;
} // namespace

Journal::Journal(BlockIo &io, const JournalImage &image, MetadataTrees &trees, Zones &zones)
    : io_(io), trees_(trees), zones_(zones), spare_superblock_(1 - image.superblock_copy),
      mount_(NextMount(image)), found_parts_(image.log.size()), layout_(image.superblock),
      tells_sharing_((image.superblock.incompat & INCOMPAT_SHARED) != 0),
      capacity_units_(image.superblock.capacity_units), area_(image.log.back().area),
      position_(image.log.back().bytes), records_(image.log.back().records), epoch_(image.log.back().epoch),
      superblock_(image.superblock) {}

void Journal::Flush() {
    std::lock_guard<std::mutex> guard(flush_mutex_);
    if (flush_failed_) {
        throw Error(ErrorCode::IO, io_.TargetName() + ": a flush failed before");
    }
    try {
        io_.Flush();
    } catch (const std::bad_alloc &) {
        throw;
    } catch (...) {
        flush_failed_ = true;
        throw;
    }
}

// All in flight together, and durable on return. A few small writes carry FUA: they wait for the medium side by side,
// one round trip in all, while a flush would be a second one, and waits for everything else in the cache, such as
// spilled blocks. A device takes many bytes faster into its cache and writes them at one flush.
void Journal::WriteDurably(std::vector<Segment> segments, bool flush) {
    uint64_t bytes = 0;
    for (const Segment &segment : segments) {
        bytes += segment.length;
    }
    const bool fua = !flush && io_.Caps().fua && bytes <= FUA_BYTES_MAX;
    io_.Execute({Opcode::WRITE, fua, std::move(segments)});
    if (!fua) {
        Flush();
    }
}

void Journal::WriteSuperblockDurablyAt(const TreeSuperblock &superblock, uint64_t unit) {
    AlignedBuffer buffer(ALLOCATION_UNIT_BYTES);
    memcpy(buffer.Data(), &superblock, sizeof(superblock));
    WriteDurably(
        {{unit * ALLOCATION_UNIT_BYTES, buffer.Data(), ALLOCATION_UNIT_BYTES, PlacementClass::METADATA}},
        false);
}

void Journal::WriteSuperblockDurably(const TreeSuperblock &superblock, int copy) {
    WriteSuperblockDurablyAt(superblock, copy == 0 ? 0 : superblock.capacity_units - 1);
}

// Two that differ never have the same number, also where memory ran out between the first and the last copy of one.
uint64_t Journal::NextSequence() {
    sequence_used_ = std::max(sequence_used_, superblock_.sequence) + 1;
    return sequence_used_;
}

// The copy that the mount relies on comes last: the other one may be damaged, or old. Only when both are durable is
// anything given up that they named before.
void Journal::WriteSuperblocks(TreeSuperblock next) {
    next.sequence = NextSequence();
    SealSuperblock(next);
    WriteCopyAtEnd(next);
    WriteSuperblockDurably(next, spare_superblock_);
    WriteSuperblockDurably(next, 1 - spare_superblock_);
    superblock_ = next;
}

// Superblock 0 says where the other one is; where it is damaged, that is looked for at the end of the target. So the new
// place comes first: whatever a cut leaves of superblock 0, it leads to a whole one, or that one is found at the end.
// What lies at the old place afterwards belongs to the data area, and must not be taken for a superblock.
void Journal::WriteGrownSuperblocks(TreeSuperblock next) {
    AlignedBuffer zeros;
    zeros.AppendZeros(ALLOCATION_UNIT_BYTES);
    next.sequence = NextSequence();
    SealSuperblock(next);
    WriteCopyAtEnd(next); // it may have become larger still
    WriteSuperblockDurably(next, 1);
    WriteSuperblockDurably(next, 0);
    WriteDurably({{(superblock_.capacity_units - 1) * ALLOCATION_UNIT_BYTES, zeros.Data(),
                   ALLOCATION_UNIT_BYTES, PlacementClass::METADATA}},
                 false);
    superblock_ = next;
}

// On a target that has become larger, superblock 1 is not at the end, where it is looked for when superblock 0 is damaged,
// as it may be by a cut while it is written. So a third copy is there first. It also replaces what a growth that was cut
// short has left: this mount goes on without that.
void Journal::WriteCopyAtEnd(const TreeSuperblock &superblock) {
    uint64_t bytes = io_.CapacityBytes();
    try {
        bytes = io_.RefreshCapacity();
    } catch (const Error &) {
        // A device that cannot be asked is as large as it was.
    }
    const uint64_t units = bytes / ALLOCATION_UNIT_BYTES;
    if (units > superblock.capacity_units) {
        WriteSuperblockDurablyAt(superblock, units - 1);
    }
}

// Both superblocks count the mount before it writes a record or a page, so whoever mounts after it uses other numbers,
// whichever copy is lost then.
void Journal::Begin() {
    if (started_) {
        return;
    }
    if (!counted_) {
        std::lock_guard<std::mutex> guard(checkpoint_mutex_);
        // What the mount has read may still be in the device's cache, if the process before was killed.
        Flush();
        TreeSuperblock next = superblock_;
        next.mounts = mount_;
        WriteSuperblocks(next);
        counted_ = true;
    }
    // The log goes on in the other area, because a torn tail is never appended to. There is to be a checkpoint before
    // it comes back to this one; before anything is written to the other, if that is needed, too.
    if (!has_pending_) {
        BeginCheckpoint();
    }
    if (found_parts_ > 1) {
        WriteCheckpoint();
    }
    started_ = true;
}

bool Journal::Append(const JournalRecord &record) {
    if (record.items.empty()) {
        if (record.cached != JournalRecord::Cached::NOTHING) {
            Flush();
        }
        return false;
    }
    Begin();
    RequireFeatures(record.items);
    std::string payload;
    for (const Item &item : record.items) {
        AppendItem(payload, item);
    }
    const uint64_t footprint = RecordFootprint(payload.size(), layout_.lba_size);
    const bool fits = footprint <= std::min(RECORD_BYTES_MAX, rawduck::LogBytes(layout_));
    if (!record_under_way_) {
        fits ? RequireRoom(footprint) : static_cast<void>(WriteCheckpoint());
        record_under_way_ = true;
    }
    ApplyItems(record.items);
    fits ? WriteRecord(record, payload) : WriteByCheckpoint(record);
    record_under_way_ = false;
    applied_ = 0;
    return fits;
}

// Before the record: older code that found it would take it for damage, and write nothing; but where a checkpoint has the
// clone, it would free what others refer to.
void Journal::RequireFeatures(const std::vector<Item> &items) {
    const bool shares = std::any_of(items.begin(), items.end(),
                                    [](const Item &item) { return item.type == ItemType::CLONE; });
    if (!shares || tells_sharing_) {
        return; // without waiting for a checkpoint that is being written
    }
    std::lock_guard<std::mutex> guard(checkpoint_mutex_);
    if (pending_) {
        pending_->superblock.incompat |= INCOMPAT_SHARED;
    }
    TreeSuperblock next = superblock_;
    next.incompat |= INCOMPAT_SHARED;
    WriteSuperblocks(next);
    tells_sharing_ = true;
}

void Journal::Checkpoint() {
    Begin();
    WriteCheckpoint();
    BeginCheckpoint();
    WriteCheckpoint();
}

void Journal::BeginGrowth(uint64_t capacity_units) {
    Begin();
    WriteCheckpoint(); // there is one at a time
    if (capacity_units > capacity_units_) {
        GrowTrees(capacity_units);
    }
    BeginCheckpoint();
}

void Journal::GrowTrees(uint64_t capacity_units) {
    for (;;) {
        try {
            std::unique_lock<std::shared_mutex> guard(trees_.store.Mutex());
            trees_.catalog.Grow(capacity_units - 1);
            capacity_units_ =
                capacity_units; // with the area of the trees: every checkpoint from now on is of both
            return;
        } catch (const Error &error) {
            if (error.Code() != ErrorCode::NO_SPACE || !RefillZones()) {
                throw;
            }
        }
    }
}

// A checkpoint begins when half of an area is full, so that there is room for records while it is written. Only when
// the rest is full, too, has a record to wait for it.
void Journal::RequireRoom(uint64_t footprint) {
    const uint64_t needed = position_ + footprint;
    if (needed <= rawduck::LogBytes(layout_) / 2 || (has_pending_ && needed <= rawduck::LogBytes(layout_))) {
        return;
    }
    if (has_pending_ || position_ > 0) {
        WriteCheckpoint(); // which also waits for whoever is writing it
        BeginCheckpoint();
    }
}

// Only between two records. From here on records go to the other area, which no superblock needs.
void Journal::BeginCheckpoint() {
    std::lock_guard<std::mutex> guard(checkpoint_mutex_);
    RAWDUCK_INVARIANT(!pending_, "one checkpoint is written at a time");
    Pending pending;
    pending.superblock = superblock_;
    pending.superblock.capacity_units = capacity_units_;
    pending.superblock.data_end = capacity_units_ - 1;
    TakeFrozen(pending);
    before_ = {epoch_, position_};
    area_ = 1 - area_;
    position_ = 0;
    records_ = 0;
    epoch_ = NumberInMount(mount_, ++epochs_);
    pending.superblock.epoch = epoch_;
    pending.superblock.log_area = area_;
    pending_.emplace(std::move(pending));
    has_pending_ = true;
}

void Journal::TakeFrozen(Pending &pending) {
    for (;;) {
        try {
            std::unique_lock<std::shared_mutex> guard(trees_.store.Mutex());
            if (trees_.pages.MapBytes(1) >= MAP_PAGES_MAX * TREE_PAGE_BYTES) {
                throw Error(ErrorCode::NO_SPACE, io_.TargetName() +
                                                     ": there is more metadata than can be listed; remove "
                                                     "files from the volume");
            }
            PageStore::Frozen frozen = trees_.store.Freeze(trees_.map_units, zones_.SpareZones());
            pending.superblock.generation = frozen.generation;
            pending.superblock.roots = trees_.catalog.Roots();
            pending.superblock.map_bytes = frozen.map.size();
            pending.superblock.map_crc = Crc32c(0, frozen.map.data(), frozen.map.size());
            std::fill_n(pending.superblock.map_units, MAP_PAGES_MAX, 0);
            std::copy(frozen.map_units.begin(), frozen.map_units.end(), pending.superblock.map_units);
            pending.map.swap(frozen.map);
            trees_.map_units.swap(frozen.map_units);
            zones_.CheckpointBegins();
            return;
        } catch (const Error &error) {
            if (error.Code() != ErrorCode::NO_SPACE || !RefillZones()) {
                throw;
            }
        }
    }
}

bool Journal::RefillZones() {
    return trees_.zones.Add([this] { return zones_.TakeZone(); });
}

void Journal::ApplyItems(const std::vector<Item> &items) {
    while (applied_ < items.size()) {
        std::string problem;
        try {
            std::unique_lock<std::shared_mutex> guard(trees_.store.Mutex());
            trees_.catalog.Apply(items[applied_], problem);
        } catch (const Error &error) {
            if (error.Code() != ErrorCode::NO_SPACE || !RefillZones()) {
                throw;
            }
            continue; // the item goes on
        }
        if (!problem.empty()) {
            throw Error(ErrorCode::CORRUPT, io_.TargetName() +
                                                ": refused to write metadata that contradicts itself (" +
                                                problem + "); this is a bug in rawduck, please report it");
        }
        applied_++;
    }
}

void Journal::WriteRecord(const JournalRecord &record, const std::string &payload) {
    const std::string bytes = SealRecord(layout_.uuid, epoch_, records_ + 1, NowUs(), payload,
                                         static_cast<uint32_t>(record.items.size()), layout_.lba_size,
                                         records_ == 0 ? before_ : LogEnding());
    AlignedBuffer buffer;
    buffer.Append(bytes.data(), bytes.size());
    std::vector<Segment> writes = record.writes;
    writes.push_back(
        {LogStart(layout_, area_) + position_, buffer.Data(), buffer.Size(), PlacementClass::METADATA});
    // Data without a checksum in the record has to be durable before the record that publishes it.
    if (record.cached == JournalRecord::Cached::NOT_CHECKSUMMED) {
        Flush();
    }
    WriteDurably(std::move(writes), record.cached == JournalRecord::Cached::CHECKSUMMED);
    // Nothing after this throws: a durable record is not written again.
    position_ += bytes.size();
    records_++;
    RAWDUCK_INVARIANT(IsAligned(position_, layout_.lba_size) && position_ <= rawduck::LogBytes(layout_),
                      "records lie back to back and inside the log");
}

// What is too long for a record is published by a checkpoint, with the data: that is flushed before the superblocks.
void Journal::WriteByCheckpoint(const JournalRecord &record) {
    if (!frozen_with_record_) {
        if (!record.writes.empty()) {
            io_.Execute({Opcode::WRITE, false, record.writes});
        }
        BeginCheckpoint();
        frozen_with_record_ = true;
    }
    WriteCheckpoint();
    frozen_with_record_ = false;
}

bool Journal::IsUnchanged() {
    std::lock_guard<std::mutex> guard(checkpoint_mutex_);
    return rawduck::IsUnchanged(io_, superblock_, LogPart{epoch_, area_, position_, records_});
}

bool Journal::WriteCheckpoint() {
    std::lock_guard<std::mutex> guard(checkpoint_mutex_);
    if (!pending_) {
        return false;
    }
    trees_.store.WriteFrozen();
    WriteMap(*pending_);
    // Superblocks must not name pages that are still in the device's cache.
    Flush();
    pending_->superblock.capacity_units > superblock_.capacity_units
        ? WriteGrownSuperblocks(pending_->superblock)
        : WriteSuperblocks(pending_->superblock);
    uint64_t pages = 0;
    {
        // Only now can no mount go by the checkpoint before.
        std::unique_lock<std::shared_mutex> store_guard(trees_.store.Mutex());
        trees_.store.FrozenIsDurable();
        pages = trees_.pages.FrozenPages();
    }
    pending_.reset();
    has_pending_ = false;
    checkpoints_++;
    zones_.CheckpointIsDurable(pages);
    while (zones_.SpareZones() > 0) {
        const uint64_t zone = trees_.zones.Take();
        if (zone == 0) {
            break; // the others have pages in them
        }
        zones_.GiveZone(zone);
    }
    return true;
}

void Journal::WriteMap(const Pending &pending) {
    AlignedBuffer buffer;
    buffer.Append(pending.map.data(), pending.map.size());
    const std::vector<uint64_t> units = MapUnits(pending.superblock);
    buffer.AppendZeros(units.size() * TREE_PAGE_BYTES - pending.map.size());
    Request request;
    request.opcode = Opcode::WRITE;
    for (size_t i = 0; i < units.size(); i++) {
        request.segments.push_back({units[i] * ALLOCATION_UNIT_BYTES, buffer.Data() + i * TREE_PAGE_BYTES,
                                    TREE_PAGE_BYTES, PlacementClass::METADATA});
    }
    if (!units.empty()) {
        io_.Execute(request);
    }
}

} // namespace rawduck
