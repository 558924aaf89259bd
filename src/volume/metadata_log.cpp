#include "volume/metadata_log.hpp"

#include "common/aligned_buffer.hpp"
#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/invariant.hpp"
#include "volume/format/crc32c.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

namespace rawduck {

namespace {

//! A record and its data up to this length are written with FUA, more is flushed.
constexpr uint64_t FUA_BYTES_MAX = 64 * KIB;

//! For elements that are about to be added one by one. Grows as adding them would.
template <class T> void MakeRoom(std::vector<T> &vector, size_t more) {
    const size_t needed = vector.size() + more;
    if (needed > vector.capacity()) {
        vector.reserve(std::max(needed, 2 * vector.capacity()));
    }
}

//! Without memory for the failure's own text, a short one. Never throws.
std::string TextOf(const std::exception_ptr &failure) noexcept {
    try {
        std::rethrow_exception(failure);
    } catch (const std::exception &error) {
        try {
            return error.what();
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
      superblocks_agree_(image.copies_agree), epoch_(superblock_.epoch),
      has_verify_(!image.last_verify.empty()), last_verify_(image.last_verify) {}

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
        Group group = std::move(pending_);
        pending_ = Group();
        const uint64_t group_ticket = next_ticket_++;
        lock.unlock();
        std::exception_ptr failure;
        try {
            Write(group);
            if (!group.freed.empty()) {
                free_extents_(group.freed);
            }
        } catch (...) {
            failure = std::current_exception();
        }
        lock.lock();
        writing_ = false;
        if (!failure) {
            RAWDUCK_INVARIANT(group_ticket == durable_ticket_ + 1,
                              "records become durable one after the other");
            durable_ticket_ = group_ticket;
        } else if (poisoned_.empty()) {
            poisoned_ = TextOf(failure);
        }
        written_[group_ticket % 2].notify_all();
        // One of the next group writes for all of it. Nobody will when the log is poisoned.
        if (poisoned_.empty()) {
            written_[next_ticket_ % 2].notify_one();
        } else {
            written_[next_ticket_ % 2].notify_all();
        }
    }
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
    const bool fits = started_ && footprint <= RECORD_BYTES_MAX &&
                      LogStart(superblock_) + position_ + footprint <= LogEnd(superblock_);
    ApplyToCatalog(group.items);
    if (fits) {
        WriteRecord(payload, group);
        RememberVerify(group.items);
    } else {
        if (!group.writes.empty()) {
            io_.Execute({Opcode::WRITE, false, group.writes});
        }
        StartEpoch();
        RememberVerify({});
    }
}

void MetadataLog::WriteRecord(const std::string &payload, Group &group) {
    // Data that nobody vouches for has to be durable before the record that publishes it.
    if (group.cached == Cached::UNVERIFIED) {
        io_.Flush();
    }
    const std::string record =
        SealRecord(superblock_.uuid, superblock_.epoch, log_records_.load() + 1, NowUs(), payload,
                   static_cast<uint32_t>(group.items.size()), superblock_.lba_size);
    AlignedBuffer buffer;
    buffer.Append(record.data(), record.size());
    group.writes.push_back(
        {LogStart(superblock_) + position_, buffer.Data(), buffer.Size(), PlacementClass::METADATA});
    WriteDurably(std::move(group.writes), group.cached == Cached::VERIFIED);
    position_ += record.size();
    RAWDUCK_INVARIANT(IsAligned(position_, superblock_.lba_size) &&
                          LogStart(superblock_) + position_ <= LogEnd(superblock_),
                      "records lie back to back and inside the log");
    log_bytes_ = position_;
    log_records_++;
}

// All in flight together, and durable on return. A few small writes carry FUA: they wait for the medium side
// by side, one round trip in all, while a flush would be a second one, and waits for everything else in the
// cache, such as spilled blocks. A device takes many bytes faster into its cache and writes them at one
// flush.
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
// still name it: it was not flushed before the power went, or is damaged. So the first copy that is written
// here is that one, and the copy that a mount relies on is touched only when there is another to rely on.
// Both are durable when this returns, before anything of the epoch is acknowledged: a copy that is damaged
// later takes nothing with it (choose_superblock.cpp).
void MetadataLog::StartEpoch() {
    const std::string snapshot = catalog_->Snapshot();
    RAWDUCK_INVARIANT(snapshot.size() == catalog_->SnapshotBytes(),
                      "the length of a snapshot is known before");
    if (snapshot.size() > superblock_.metadata_units * UNIT_SIZE) {
        throw Error(ErrorCode::NO_SPACE, io_.TargetName() + ": the metadata does not fit into its area");
    }
    if (!started_) {
        // What the mount relies on may still be in the device's cache, when the process before was killed.
        io_.Flush();
        // A copy that is lost now may have begun the next epoch: the records of that must stay invalid.
        superblock_.epoch += superblocks_agree_ ? 0 : 1;
        superblock_.generation += superblocks_agree_ ? 0 : 1;
    }
    RAWDUCK_SLOW_INVARIANT(catalog_->Verify().empty(), "no two files share a name or space");
    superblock_.active_area ^= 1;
    superblock_.epoch++;
    superblock_.generation++;
    superblock_.snapshot_bytes = snapshot.size();
    superblock_.snapshot_crc = Crc32c(0, snapshot.data(), snapshot.size());
    SealSuperblock(superblock_);
    if (!snapshot.empty()) {
        AlignedBuffer buffer;
        buffer.Append(snapshot.data(), snapshot.size());
        buffer.AppendZeros(AlignUp(snapshot.size(), UNIT_SIZE) - snapshot.size());
        io_.Write(superblock_.metadata_start[superblock_.active_area] * UNIT_SIZE, buffer.Data(),
                  buffer.Size(), PlacementClass::METADATA);
    }
    io_.Flush(); // the snapshot, and all data that it publishes
    WriteSuperblock(spare_superblock_);
    WriteSuperblock(1 - spare_superblock_);
    started_ = true;
    position_ = 0;
    epoch_ = superblock_.epoch;
    log_bytes_ = 0;
    log_records_ = 0;
}

// Durable on return.
void MetadataLog::WriteSuperblock(int copy) {
    AlignedBuffer buffer(UNIT_SIZE);
    memcpy(buffer.Data(), &superblock_, sizeof(superblock_));
    const uint64_t unit = copy == 0 ? 0 : superblock_.capacity_units - 1;
    WriteDurably({{unit * UNIT_SIZE, buffer.Data(), UNIT_SIZE, PlacementClass::METADATA}}, false);
}

void MetadataLog::ApplyToCatalog(const std::vector<Item> &items) {
    std::string problem;
    for (const Item &item : items) {
        if (!catalog_->Apply(item, problem)) {
            throw Error(ErrorCode::CORRUPT, io_.TargetName() +
                                                ": refused to write metadata that contradicts itself (" +
                                                problem + "); this is a bug in rawduck, please report it");
        }
    }
}

void MetadataLog::RememberVerify(const std::vector<Item> &items) {
    std::lock_guard<std::mutex> guard(verify_mutex_);
    last_verify_.clear();
    for (const Item &item : items) {
        last_verify_.insert(last_verify_.end(), item.verify.begin(), item.verify.end());
    }
    has_verify_ = !last_verify_.empty();
}

void MetadataLog::BeforeOverwrite(uint64_t device_offset, uint64_t length) {
    if (!has_verify_.load(std::memory_order_acquire)) {
        return;
    }
    bool covered = false;
    {
        std::lock_guard<std::mutex> guard(verify_mutex_);
        for (const Verify &range : last_verify_) {
            covered = covered || (device_offset < range.device_offset + range.length &&
                                  range.device_offset < device_offset + length);
        }
    }
    if (covered) {
        Commit(Queue({Item(ItemType::VERIFY, 0)}));
    }
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
    // Nobody writes for the pending group any more.
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
