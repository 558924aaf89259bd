#include "volume/file/file.hpp"

#include "common/clock.hpp"
#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "common/invariant.hpp"
#include "common/scope_exit.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {
//! Appended data up to this length is covered by a checksum in the record; more is flushed first.
constexpr uint64_t CHECKSUMMED_BYTES_MAX = 256 * KIB;

uint64_t UnitsIn(const std::vector<Extent> &extents) {
    uint64_t units = 0;
    for (const Extent &extent : extents) {
        units += extent.units;
    }
    return units;
}

} // namespace

void FileContext::FreeTemporary(const std::vector<Extent> &extents) const {
    spill.Forget(extents);
    space.Discard(extents);
}

File::File(const FileContext &context, uint64_t id, std::string name, FileKind kind,
           const CatalogEntry *entry)
    : context_(context), id_(id), kind_(kind), created_us_(entry ? entry->created_us : NowUs()),
      snapshot_(entry && entry->snapshot), name_(std::move(name)), metadata_(context.room),
      modified_us_(created_us_), published_(entry != nullptr || kind == FileKind::DIRECTORY) {
    if (entry) {
        TakeOver(*entry);
        sharing_ = context_.space.AnyShared(entry->extents);
        metadata_.BeginFound(SizeOfEntry());
    } else if (!IsTemp()) {
        any_tail_fits_ = kind_ == FileKind::WAL;
        any_tail_fits_ ? metadata_.BeginLog(SizeOfEntry()) : metadata_.Begin(SizeOfEntry());
    }
}

// What it has by its entry. Readers and writers come later.
void File::TakeOver(const CatalogEntry &entry) {
    for (const Extent &extent : entry.extents) {
        map_.Append(static_cast<AllocationUnit>(extent.start), extent.units);
    }
    holes_ = HoleSet(entry.holes);
    durable_holes_ = entry.holes;
    has_holes_ = !holes_.Empty();
    size_ = durable_size_ = entry.size;
    durable_units_ = map_.Units();
    modified_us_ = entry.modified_us;
    durable_tail_ = entry.tail;
    tail_.Append(entry.tail.data(), entry.tail.size());
    tail_start_ = entry.size - entry.tail.size();
}

void File::KeepRoomForTail() {
    if (kind_ == FileKind::WAL && !any_tail_fits_ && !snapshot_) {
        any_tail_fits_ = true;
        any_tail_fits_ = metadata_.TryExtendLog(SizeOfEntry());
    }
}

// As it is now.
EntrySize File::SizeOfEntry() const {
    EntrySize size = MoreExtents(map_.Count());
    size.name_bytes = name_.size();
    size.tail_bytes = TailRoom(Size());
    size.holes = holes_.Count();
    return size;
}

// Where counts of references change, at the begin or the end of an extent, ranges of them end.
EntrySize File::MoreExtents(uint64_t count) const {
    EntrySize size;
    size.extents = count;
    size.references = sharing_ ? 2 * count : 0;
    return size;
}

uint64_t File::TailRoom(uint64_t size) const {
    return any_tail_fits_ ? context_.lba_size - 1 : size % context_.lba_size;
}

std::string File::Name() const {
    std::lock_guard<std::mutex> guard(name_mutex_);
    return name_;
}

void File::Rename(std::string name, const std::function<void()> &queue) {
    const uint64_t before = Name().size(), after = name.size();
    EntrySize more;
    more.name_bytes = after - std::min(before, after);
    metadata_.Take(more, MetadataUse::GROW);
    try {
        queue();
    } catch (...) {
        metadata_.GiveBack(more);
        throw;
    }
    std::unique_lock<std::shared_mutex> guard(map_mutex_);
    std::lock_guard<std::mutex> name_guard(name_mutex_);
    name_.swap(name);
    metadata_.Renamed(more, after);
}

FileInfo File::Info() const {
    FileInfo info;
    info.name = Name();
    info.kind = kind_;
    info.size = Size();
    info.modified_us = modified_us_;
    info.created_us = created_us_;
    info.snapshot = snapshot_;
    std::shared_lock<std::shared_mutex> guard(map_mutex_);
    info.allocated = info.not_shared = map_.Units() * ALLOCATION_UNIT_BYTES;
    for (const Extent &extent : map_.Extents()) {
        if (sharing_) {
            info.not_shared -=
                (extent.units - UnitsIn(context_.space.NotShared(extent))) * ALLOCATION_UNIT_BYTES;
        }
        info.extents.push_back(ExtentInfo{extent.file_unit * ALLOCATION_UNIT_BYTES,
                                          extent.start * ALLOCATION_UNIT_BYTES,
                                          extent.units * ALLOCATION_UNIT_BYTES});
    }
    return info;
}

FileLayout File::Layout() const {
    FileLayout layout;
    std::shared_lock<std::shared_mutex> guard(map_mutex_);
    layout.size = Size();
    for (const Extent &extent : map_.Extents()) {
        layout.extents.push_back(ExtentInfo{extent.file_unit * ALLOCATION_UNIT_BYTES,
                                            extent.start * ALLOCATION_UNIT_BYTES,
                                            extent.units * ALLOCATION_UNIT_BYTES});
    }
    layout.holes = holes_.List();
    return layout;
}

void File::Sync() {
    if (IsTemp()) {
        return;
    }
    uint64_t ticket = 0;
    {
        std::lock_guard<std::mutex> publish(publish_mutex_);
        if (Removed()) {
            return;
        }
        // Shared is enough without a tail: writes in place that are not finished are holes, or overwrite what
        // was never reported durable. So scans can read during a checkpoint.
        std::shared_lock<Gate> shared(gate_);
        std::unique_lock<Gate> exclusive(gate_, std::defer_lock);
        if (!tail_.Empty()) {
            shared.unlock();
            exclusive.lock();
            FinishCommit();
        }
        ticket = QueuePublish();
        if (tail_queued_ > 0) {
            CommitGated(ticket);
            return;
        }
    }
    context_.log.Commit(ticket);
}

// Under publish_mutex_ and the exclusive gate, which keeps the tail as it is while the log writes from it,
// and readers from its place on the target.
void File::CommitGated(uint64_t ticket) {
    commit_first_ = ticket;
    FinishCommit();
}

// Under the exclusive gate. When memory is out in a commit, the log tries it again with the next one, and may
// write from the tail then: whoever changes that, or relies on the commit, does it first.
void File::FinishCommit() {
    if (commit_first_ == 0) {
        return;
    }
    context_.log.Commit(commit_first_);
    commit_first_ = 0;
    tail_.DropFront(tail_queued_);
    tail_start_ += tail_queued_;
    tail_queued_ = 0;
    RequireTail();
}

// Under the exclusive gate.
void File::RequireTail() const {
    const uint64_t lba = context_.lba_size;
    RAWDUCK_INVARIANT(tail_.Empty() ? IsAligned(Size(), lba)
                                    : IsAligned(tail_start_, lba) && tail_start_ + tail_.Size() == Size(),
                      "the tail ends with the file and starts with an LBA");
    RAWDUCK_INVARIANT(Size() <= map_.Units() * ALLOCATION_UNIT_BYTES, "extents cover the size");
}

// Under publish_mutex_ and the gate: exclusive, or shared when the tail is empty. Pending changes are
// cleared, and the file counts as published, only when the log has taken the items: until then a failure
// leaves everything to the next publish, and nobody queues anything about a file before the item that creates
// it.
uint64_t File::QueuePublish() {
    if (AlignDown(tail_.Size(), context_.lba_size) > CHECKSUMMED_BYTES_MAX) {
        DrainTail(); // too much to vouch for: flushed before the record
    }
    const uint64_t whole = AlignDown(tail_.Size(), context_.lba_size);
    RAWDUCK_INVARIANT(!IsTemp() && !Removed(), "the log knows of no temporary file, and of nothing removed");
    std::vector<Item> items;
    if (!Published()) {
        items.push_back(CreateItem(id_, kind_, Name()));
    }
    std::vector<Segment> writes = TailWrites(items, whole);
    std::string tail(tail_.Data() + whole, tail_.Size() - whole);
    std::unique_lock<std::shared_mutex> guard(map_mutex_);
    RemoveHoles(tail_start_, whole); // where the file was cut inside a hole
    auto cached = AddMoved(items) ? MetadataLog::Cached::CHECKSUMMED : MetadataLog::Cached::NOTHING;
    AddExtents(items);
    const bool sized = AddSize(items, tail);
    // What is written behind the size is a hole until it is there, and leaves a long list as it was.
    std::vector<Hole> holes = holes_dirty_ ? holes_.List() : std::vector<Hole>();
    const bool other_holes = holes_dirty_ && holes != durable_holes_;
    if (other_holes) {
        Item item(ItemType::HOLES, id_);
        item.holes = holes;
        items.push_back(std::move(item));
    }
    // Last: whatever was seen above had set it before.
    const bool unflushed = unflushed_.exchange(false);
    uint64_t ticket = 0;
    try {
        cached = unflushed ? MetadataLog::Cached::NOT_CHECKSUMMED : cached;
        ticket = context_.log.Queue(std::move(items), replaced_, cached, std::move(writes));
    } catch (...) {
        unflushed_ = unflushed_ || unflushed;
        throw;
    }
    published_ = true;
    metadata_.Published(SizeOfEntry());
    tail_queued_ = whole;
    moved_.clear();
    replaced_.clear();
    holes_dirty_ = false;
    if (other_holes) {
        durable_holes_.swap(holes);
    }
    if (sized) {
        durable_size_ = Size();
        durable_units_ = AlignUp(Size(), ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES;
        durable_tail_.swap(tail);
    }
    return ticket;
}

// Returns what the log is to write: the whole LBAs of the tail.
std::vector<Segment> File::TailWrites(std::vector<Item> &items, uint64_t whole) {
    if (whole == 0) {
        return {};
    }
    std::vector<Segment> writes = Segments(tail_.Data(), whole, tail_start_);
    Item checksums(ItemType::DATA_CHECKSUM, id_);
    for (const Segment &segment : writes) {
        context_.log.BeforeOverwrite(segment.device_offset, segment.length);
        checksums.checksums.push_back(DataChecksum{segment.device_offset,
                                                   static_cast<uint32_t>(segment.length),
                                                   Crc32c(0, segment.data, segment.length)});
    }
    items.push_back(std::move(checksums));
    return writes;
}

// Returns whether there are DATA_CHECKSUM items among what it adds.
bool File::AddMoved(std::vector<Item> &items) const {
    if (moved_.empty()) {
        return false;
    }
    Item remap(ItemType::REMAP, id_);
    Item checksums(ItemType::DATA_CHECKSUM, id_);
    uint64_t end = 0;
    for (const auto &[unit, moved] : moved_) {
        const std::vector<Extent> pieces = map_.Slice(std::max(unit, end), unit + moved.units);
        remap.extents.insert(remap.extents.end(), pieces.begin(), pieces.end());
        end = std::max(end, unit + moved.units);
        if (moved.checksum.length > 0) {
            checksums.checksums.push_back(moved.checksum);
        }
    }
    const bool has_checksums = !checksums.checksums.empty();
    items.push_back(std::move(remap));
    if (has_checksums) {
        items.push_back(std::move(checksums));
    }
    return has_checksums;
}

void File::AddExtents(std::vector<Item> &items) const {
    const uint64_t needed = AlignUp(Size(), ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES;
    if (needed > durable_units_) {
        Item extents(ItemType::EXTENTS, id_);
        extents.extents = map_.Slice(durable_units_, needed);
        items.push_back(std::move(extents));
    }
}

// Returns whether there is anything to say. `tail`: the bytes behind the last whole LBA.
bool File::AddSize(std::vector<Item> &items, const std::string &tail) const {
    const uint64_t size = Size();
    if (size == durable_size_ && tail == durable_tail_) {
        return false;
    }
    Item item(size < durable_size_ ? ItemType::TRUNCATE : ItemType::SIZE, id_);
    item.size = size;
    item.time_us = modified_us_;
    item.tail = tail;
    items.push_back(std::move(item));
    return true;
}

void File::Truncate(uint64_t size) {
    const ScopeExit changed([&] { CountChange(); });
    std::lock_guard<std::mutex> publish(publish_mutex_);
    std::unique_lock<Gate> gate(gate_);
    if (size > Size()) {
        throw Error(ErrorCode::INVALID, context_.io.TargetName() + "/" + Name() + ": cannot truncate to " +
                                            std::to_string(size) + " bytes, the file has only " +
                                            std::to_string(Size()));
    }
    FinishCommit();
    Growth growth(*this);
    EntrySize more;
    more.tail_bytes = TailRoom(size) - std::min(TailRoom(size), TailRoom(Size()));
    growth.Take(more, MetadataUse::GROW);
    AlignedBuffer rest = TailOf(size);
    modified_us_ = NowUs();
    if (IsTemp() || Removed()) {
        TruncateUnlogged(size, std::move(rest));
    } else {
        // The gate stays closed until the record is durable:
        // later appends reuse LBAs that a mount before it reads.
        CommitGated(QueueTruncate(size, std::move(rest)));
    }
}

// The bytes behind the last whole LBA, or all of the tail that there is, when the file ends at `size`.
AlignedBuffer File::TailOf(uint64_t size) const {
    AlignedBuffer rest;
    if (!tail_.Empty() && size > tail_start_) {
        rest.Append(tail_.Data(), size - tail_start_);
        return rest;
    }
    const uint64_t base = AlignDown(size, context_.lba_size);
    rest.Resize(size - base);
    if (size > base) {
        ReadDevice(rest.Data(), size - base, base);
    }
    return rest;
}

// For a file that is not in the log, or is being removed from it. Without memory for the last step, the next
// mount finds the space again.
void File::TruncateUnlogged(uint64_t size, AlignedBuffer rest) {
    std::vector<Extent> freed = TakeUnitsFrom(AlignUp(size, ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES);
    {
        std::unique_lock<std::shared_mutex> guard(map_mutex_);
        RemoveHoles(size, UINT64_MAX - size);
        size_ = size;
    }
    tail_start_ = size - rest.Size();
    tail_ = std::move(rest);
    if (IsTemp()) {
        context_.FreeTemporary(freed);
    } else {
        // Free only once the record that removes the file is durable.
        context_.log.Commit(context_.log.Queue({}, std::move(freed)));
    }
}

// Gives up what lies behind `size`. When it throws, the file is as it was.
uint64_t File::QueueTruncate(uint64_t size, AlignedBuffer rest) {
    const uint64_t units = AlignUp(size, ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES;
    ExtentMap map = map_;
    HoleSet holes = holes_;
    std::map<uint64_t, Moved> moved = moved_;
    std::vector<Extent> replaced = map.Truncate(units);
    replaced.insert(replaced.end(), replaced_.begin(), replaced_.end());
    holes.Remove(size, UINT64_MAX - size);
    moved.erase(moved.lower_bound(units), moved.end());
    uint64_t tail_start = size - rest.Size();
    const auto exchange = [&] {
        std::unique_lock<std::shared_mutex> guard(map_mutex_);
        std::swap(map_, map);
        std::swap(holes_, holes);
        has_holes_ = !holes_.Empty();
        holes_dirty_ = true;
        moved_.swap(moved);
        replaced_.swap(replaced);
        std::swap(tail_, rest);
        std::swap(tail_start_, tail_start);
        size = size_.exchange(size);
    };
    exchange();
    try {
        return QueuePublish();
    } catch (...) {
        exchange();
        throw;
    }
}

// All or nothing.
std::vector<Extent> File::TakeUnitsFrom(uint64_t units) {
    std::unique_lock<std::shared_mutex> guard(map_mutex_);
    std::vector<Extent> freed = map_.Slice(units, map_.Units());
    freed.insert(freed.end(), replaced_.begin(), replaced_.end());
    map_.Truncate(units);
    replaced_.clear();
    moved_.erase(moved_.lower_bound(units), moved_.end());
    return freed;
}

bool File::Deallocate(uint64_t offset, uint64_t length) {
    std::shared_lock<Gate> gate(gate_);
    // Not the headers: a record that is yet to be written may vouch for what they hold.
    const uint64_t begin = std::max(AlignUp(offset, ALLOCATION_UNIT_BYTES), IsTemp() ? 0 : HEAD_BYTES);
    const uint64_t end =
        AlignDown(std::min(offset + length, tail_.Empty() ? Size() : tail_start_), ALLOCATION_UNIT_BYTES);
    std::vector<DeviceRange> ranges;
    if (begin < end) {
        for (const Segment &segment : Places(end - begin, begin)) {
            if (IsTemp()) {
                context_.spill.Forget(segment.device_offset, segment.length);
            }
            const Extent extent{0, segment.device_offset / ALLOCATION_UNIT_BYTES,
                                segment.length / ALLOCATION_UNIT_BYTES};
            AddNotShared(extent, ranges);
        }
    }
    return context_.deallocator.Deallocate(ranges);
}

void File::ReleaseReservation() {
    std::unique_lock<Gate> gate(gate_);
    FinishCommit();
    DrainTail();
    tail_.Shrink(context_.lba_size);
    std::unique_lock<std::shared_mutex> guard(map_mutex_);
    context_.space.Free(map_.Truncate(AlignUp(Size(), ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES));
}

void File::GiveBackReservation() {
    // Whoever writes into what is reserved has closed the gate, or has made it part of the file.
    std::shared_lock<Gate> gate(gate_);
    std::unique_lock<std::shared_mutex> guard(map_mutex_);
    context_.space.Free(map_.Truncate(AlignUp(Size(), ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES));
}

void File::Retire(const std::function<void(bool published)> &queue) {
    std::lock_guard<std::mutex> publish(publish_mutex_);
    RAWDUCK_INVARIANT(!Removed(), "a file is removed once");
    if (commit_first_ != 0) {
        std::unique_lock<Gate> gate(gate_);
        FinishCommit();
    }
    queue(Published());
    removed_ = true;
    metadata_.Retire();
}

std::vector<Extent> File::TakeExtents() {
    std::unique_lock<Gate> gate(gate_);
    return TakeUnitsFrom(0);
}

} // namespace rawduck
