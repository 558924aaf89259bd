#include "volume/log/metadata_log.hpp"

#include "common/clock.hpp"
#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "common/invariant.hpp"
#include "common/make_room.hpp"
#include "common/memory/aligned_buffer.hpp"
#include "volume/log/load_image.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

namespace rawduck {

namespace {

//! A record and its data up to this length are written with FUA, more is flushed.
constexpr uint64_t FUA_BYTES_MAX = 64 * KIB;

//! Without memory for the failure's own text, a short one. Never throws.
std::string TextOf(const std::exception_ptr &failure) noexcept {
    try {
        std::rethrow_exception(failure);
    } catch (const std::exception &error) {
        try {
            return *error.what() == '\0' ? "unknown error" : error.what();
        } catch (const std::bad_alloc &) {
            return "out of memory";
        }
    } catch (...) {
        return "unknown error";
    }
}

} // namespace

MetadataLog::MetadataLog(BlockIo &io, const VolumeImage &image, FreeFunction free_extents)
    : io_(io), superblock_(image.superblock), catalog_(std::make_unique<Catalog>(*image.catalog)),
      free_extents_(std::move(free_extents)), spare_superblock_(1 - image.superblock_copy),
      superblocks_agree_(image.copies_agree), position_(image.log_bytes), epoch_(superblock_.epoch),
      has_checksums_(!image.last_checksums.empty()), last_checksums_(image.last_checksums) {}

uint64_t MetadataLog::Queue(std::vector<Item> items, std::vector<Extent> freed, Cached cached,
                            std::vector<Segment> writes) {
    std::lock_guard<std::mutex> guard(mutex_);
    ThrowIfPoisoned();
    // All or nothing: what may throw comes first.
    MakeRoom(pending_.items, items.size());
    MakeRoom(pending_.freed, freed.size());
    MakeRoom(pending_.writes, writes.size());
    for (Item &item : items) {
        pending_.items.push_back(std::move(item));
    }
    pending_.freed.insert(pending_.freed.end(), freed.begin(), freed.end());
    pending_.writes.insert(pending_.writes.end(), writes.begin(), writes.end());
    pending_.cached = std::max(pending_.cached, cached);
    return next_ticket_;
}

void MetadataLog::Commit(uint64_t ticket) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (durable_ticket_ < ticket) {
        if (writing_) { // also when poisoned: what is being written may lie in this caller's memory
            written_[ticket % 2].wait(lock);
            continue;
        }
        ThrowIfPoisoned();
        writing_ = true;
        if (!unfinished_) {
            current_ = std::move(pending_);
            pending_ = Group();
            next_ticket_++;
            unfinished_ = true;
        }
        lock.unlock();
        std::string failure;
        const Outcome outcome = TryWriteCurrent(failure);
        lock.lock();
        writing_ = false;
        RAWDUCK_INVARIANT(next_ticket_ == durable_ticket_ + 2, "records become durable one after the other");
        unfinished_ = outcome == Outcome::OUT_OF_MEMORY;
        if (unfinished_) {
            // The next to commit, perhaps one of the waiters, tries again for all of the group.
            written_[0].notify_all();
            written_[1].notify_all();
            throw std::bad_alloc();
        }
        if (outcome == Outcome::DURABLE) {
            durable_ticket_++;
        } else if (poisoned_.empty()) {
            poisoned_.swap(failure);
        }
        written_[(next_ticket_ - 1) % 2].notify_all();
        // One waiter of the next group writes for all of it; nobody does when the log is poisoned.
        if (poisoned_.empty()) {
            written_[next_ticket_ % 2].notify_one();
        } else {
            written_[next_ticket_ % 2].notify_all();
        }
    }
}

// Running out of memory is not final: everything that was done can be repeated.
MetadataLog::Outcome MetadataLog::TryWriteCurrent(std::string &failure) {
    try {
        Write(current_);
    } catch (const std::bad_alloc &) {
        return Outcome::OUT_OF_MEMORY;
    } catch (...) {
        failure = TextOf(std::current_exception());
        return Outcome::FAILED;
    }
    if (!current_.freed.empty()) {
        free_extents_(current_.freed);
    }
    current_ = Group();
    return Outcome::DURABLE;
}

void MetadataLog::Write(Group &group) {
    if (group.items.empty()) {
        if (group.cached != Cached::NOTHING) {
            io_.Flush();
        }
        return;
    }
    std::string payload;
    for (const Item &item : group.items) {
        AppendItem(payload, item);
    }
    const uint64_t footprint = RecordFootprint(payload.size(), superblock_.lba_size);
    const bool fits = started_ && !epoch_under_way_ && footprint <= RECORD_BYTES_MAX &&
                      LogStart(superblock_) + position_ + footprint <= LogEnd(superblock_);
    ApplyToCatalog(group);
    if (fits) {
        WriteRecord(payload, group);
    } else {
        // Once an epoch has begun, its snapshot is durable and covers these writes: what a mount may rely on
        // is not written again.
        if (!group.writes.empty() && !epoch_under_way_) {
            io_.Execute({Opcode::WRITE, false, group.writes});
        }
        StartEpoch();
        RememberChecksums({});
    }
}

void MetadataLog::WriteRecord(const std::string &payload, const Group &group) {
    const std::string record =
        SealRecord(superblock_.uuid, superblock_.epoch, log_records_.load() + 1, NowUs(), payload,
                   static_cast<uint32_t>(group.items.size()), superblock_.lba_size);
    AlignedBuffer buffer;
    buffer.Append(record.data(), record.size());
    std::vector<Segment> writes = group.writes;
    writes.push_back(
        {LogStart(superblock_) + position_, buffer.Data(), buffer.Size(), PlacementClass::METADATA});
    std::vector<DataChecksum> checksums;
    for (const Item &item : group.items) {
        checksums.insert(checksums.end(), item.checksums.begin(), item.checksums.end());
    }
    // Data without a checksum in the record has to be durable before the record that publishes it.
    if (group.cached == Cached::NOT_CHECKSUMMED) {
        io_.Flush();
    }
    WriteDurably(std::move(writes), group.cached == Cached::CHECKSUMMED);
    // Nothing after this throws: a durable record is not written again.
    position_ += record.size();
    RAWDUCK_INVARIANT(IsAligned(position_, superblock_.lba_size) &&
                          LogStart(superblock_) + position_ <= LogEnd(superblock_),
                      "records lie back to back and inside the log");
    log_bytes_ = position_;
    log_records_++;
    RememberChecksums(std::move(checksums));
}

// All in flight together, and durable on return. A few small writes carry FUA: they
// wait for the medium side by side, one round trip in all, while a flush would be a
// second one, and waits for everything else in the cache, such as spilled blocks. A
// device takes many bytes faster into its cache and writes them at one flush.
void MetadataLog::WriteDurably(std::vector<Segment> segments, bool flush) {
    uint64_t bytes = 0;
    for (const Segment &segment : segments) {
        bytes += segment.length;
    }
    const bool fua = !flush && io_.Caps().fua && bytes <= FUA_BYTES_MAX;
    io_.Execute({Opcode::WRITE, fua, std::move(segments)});
    if (!fua) {
        io_.Flush();
    }
}

// The area that is overwritten here is the one that the superblock in use does not name. The other copy may
// still name it: it was not flushed before the power went, or is damaged. So that copy is written first, and
// the copy that a mount relies on is overwritten only when there is another to rely on. Both are durable when
// this returns, before anything of the epoch is acknowledged: damage to one copy later loses nothing
// (choose_superblock.cpp).
//
// When memory is out before the first copy is written, all of it is done again. From then on, that copy may
// name what it says: only the copies are written again, from the same superblock.
void MetadataLog::StartEpoch() {
    if (!epoch_under_way_) {
        superblock_ = WriteSnapshot();
        epoch_under_way_ = true;
    }
    WriteSuperblock(spare_superblock_);
    WriteSuperblock(1 - spare_superblock_);
    epoch_under_way_ = false;
    started_ = true;
    position_ = 0;
    epoch_ = superblock_.epoch;
    log_bytes_ = 0;
    log_records_ = 0;
}

// To the area that the superblock in use does not name. Returns the superblock that does.
Superblock MetadataLog::WriteSnapshot() {
    const std::string snapshot = catalog_->Snapshot();
    RAWDUCK_INVARIANT(snapshot.size() == catalog_->SnapshotBytes(),
                      "the length of a snapshot is known before");
    if (snapshot.size() > superblock_.metadata_units * ALLOCATION_UNIT_BYTES) {
        throw Error(ErrorCode::NO_SPACE, io_.TargetName() + ": the metadata does not fit into its area");
    }
    Superblock next = superblock_;
    if (!started_) {
        // What the mount has read may still be in the device's cache, if the process before was killed.
        io_.Flush();
        // A superblock copy that was lost may have begun the next epoch, whose records must stay invalid.
        next.epoch += superblocks_agree_ ? 0 : 1;
        next.generation += superblocks_agree_ ? 0 : 1;
    }
    RAWDUCK_SLOW_INVARIANT(catalog_->FindProblems().empty(), "no two files share a name or space");
    next.active_area ^= 1;
    next.epoch++;
    next.generation++;
    next.snapshot_bytes = snapshot.size();
    next.snapshot_crc = Crc32c(0, snapshot.data(), snapshot.size());
    SealSuperblock(next);
    if (!snapshot.empty()) {
        AlignedBuffer buffer;
        buffer.Append(snapshot.data(), snapshot.size());
        buffer.AppendZeros(AlignUp(snapshot.size(), ALLOCATION_UNIT_BYTES) - snapshot.size());
        io_.Write(next.metadata_start[next.active_area] * ALLOCATION_UNIT_BYTES, buffer.Data(), buffer.Size(),
                  PlacementClass::METADATA);
    }
    io_.Flush(); // the snapshot, and all data that it publishes
    return next;
}

// Durable on return.
void MetadataLog::WriteSuperblock(int copy) {
    AlignedBuffer buffer(ALLOCATION_UNIT_BYTES);
    memcpy(buffer.Data(), &superblock_, sizeof(superblock_));
    const uint64_t unit = copy == 0 ? 0 : superblock_.capacity_units - 1;
    WriteDurably(
        {{unit * ALLOCATION_UNIT_BYTES, buffer.Data(), ALLOCATION_UNIT_BYTES, PlacementClass::METADATA}},
        false);
}

void MetadataLog::ApplyToCatalog(Group &group) {
    std::string problem;
    for (; group.applied < group.items.size(); group.applied++) {
        if (!catalog_->Apply(group.items[group.applied], problem)) {
            throw Error(ErrorCode::CORRUPT, io_.TargetName() +
                                                ": refused to write metadata that contradicts itself (" +
                                                problem + "); this is a bug in rawduck, please report it");
        }
    }
}

void MetadataLog::RememberChecksums(std::vector<DataChecksum> checksums) {
    std::lock_guard<std::mutex> guard(checksums_mutex_);
    last_checksums_.swap(checksums);
    has_checksums_ = !last_checksums_.empty();
}

void MetadataLog::BeforeOverwrite(uint64_t device_offset, uint64_t length) {
    if (!has_checksums_.load(std::memory_order_acquire)) {
        return;
    }
    bool covered = false;
    {
        std::lock_guard<std::mutex> guard(checksums_mutex_);
        for (const DataChecksum &range : last_checksums_) {
            covered = covered || (device_offset < range.device_offset + range.length &&
                                  range.device_offset < device_offset + length);
        }
    }
    if (covered) {
        Commit(Queue({Item(ItemType::DATA_CHECKSUM, 0)}));
    }
}

bool MetadataLog::IsUnchanged() {
    return rawduck::IsUnchanged(io_, io_.TargetName(), superblock_, position_);
}

void MetadataLog::ThrowIfPoisoned() const {
    if (!poisoned_.empty()) {
        throw Error(ErrorCode::POISONED,
                    io_.TargetName() + ": the volume takes no more writes after an earlier failure (" +
                        poisoned_ +
                        "); reading goes on. Detach everything on it, check the device, then "
                        "attach again: what was committed is there");
    }
}

std::string MetadataLog::Poisoned() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return poisoned_;
}

void MetadataLog::Poison(const std::string &reason) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (poisoned_.empty()) {
        poisoned_ = reason;
    }
    // Nobody will write the pending group.
    written_[next_ticket_ % 2].notify_all();
}

uint64_t MetadataLog::Epoch() const {
    return epoch_;
}
uint64_t MetadataLog::LogBytes() const {
    return log_bytes_;
}
uint64_t MetadataLog::LogRecords() const {
    return log_records_;
}

} // namespace rawduck
