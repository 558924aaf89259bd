#include "volume/file/file.hpp"

#include "common/clock.hpp"
#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "common/make_room.hpp"
#include "common/scope_exit.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

//! Appended bytes are collected up to this length before they are written.
constexpr uint64_t TAIL_BYTES_MAX = 1 * MIB;
//! Aligned appends from this length on go straight to the target.
constexpr uint64_t DIRECT_APPEND_BYTES_MIN = 64 * KIB;

} // namespace

void File::Write(const char *data, uint64_t length, uint64_t offset) {
    if (length == 0) {
        return;
    }
    if (length > INT64_MAX || offset > INT64_MAX - length) {
        throw Error(ErrorCode::INVALID, context_.io.TargetName() + "/" + Name() + ": a write of " +
                                            std::to_string(length) + " bytes at offset " +
                                            std::to_string(offset) + " exceeds the largest possible file");
    }
    const ScopeExit changed([&] { CountChange(); }); // also when it fails halfway
    try {
        WriteOnce(data, length, offset, Attempt::FIRST);
    } catch (const Error &error) {
        if (error.Code() != ErrorCode::NO_SPACE) {
            throw;
        }
        MakeSpace();
        WriteOnce(data, length, offset, Attempt::LAST);
    }
    modified_us_ = NowUs();
}

void File::WriteOnce(const char *data, uint64_t length, uint64_t offset, Attempt attempt) {
    FinishRemoval();
    if (!TryWriteAligned(data, length, offset, attempt)) {
        std::unique_lock<Gate> gate(gate_);
        WriteGated(data, length, offset, attempt);
    }
}

// Durable contents of a removed file are replaced out of place until the record that removes it is durable,
// and no publish frees the replaced space. From then on no mount reads the file, and it is overwritten in
// place. What others have is theirs as long as they exist, so then it goes on being replaced.
void File::FinishRemoval() {
    if (!Removed() || durable_size_ == 0 || sharing_) {
        return;
    }
    std::lock_guard<std::mutex> publish(publish_mutex_);
    std::unique_lock<Gate> gate(gate_);
    uint64_t ticket = 0;
    {
        std::unique_lock<std::shared_mutex> guard(map_mutex_);
        ticket = context_.log.Queue({}, replaced_);
        replaced_.clear();
        moved_.clear();
    }
    context_.log.Commit(ticket);
    durable_size_ = 0;
}

// What the write may add to the file's entry, but for new extents: its tail, the ends of holes that it cuts,
// and with `adds_hole` the one that it leaves, or that covers what is not written yet. Under the gate.
void File::ReserveForWrite(Growth &growth, uint64_t offset, uint64_t end, bool adds_hole) {
    const uint64_t size = Size();
    // A write behind the end fills the gap first, and may fail then.
    const uint64_t tail = std::max(TailRoom(std::max(end, size)), offset > size ? TailRoom(offset) : 0);
    const uint64_t tail_before = TailRoom(size);
    const bool holes = adds_hole || (offset < size && has_holes_);
    EntrySize more;
    more.tail_bytes = tail - std::min(tail, tail_before);
    more.holes = holes ? 3 : 0;
    if (more.tail_bytes > 0 || holes) {
        growth.Take(more, MetadataUse::GROW);
    }
}

uint64_t File::Append(const char *data, uint64_t length) {
    const auto append = [&](Attempt attempt) {
        std::unique_lock<Gate> gate(gate_);
        const uint64_t offset = Size();
        WriteGated(data, length, offset, attempt);
        modified_us_ = NowUs();
        return offset;
    };
    try {
        return append(Attempt::FIRST);
    } catch (const Error &error) {
        if (error.Code() != ErrorCode::NO_SPACE) {
            throw;
        }
    }
    MakeSpace();
    return append(Attempt::LAST);
}

// The path of database blocks and spilled blocks: aligned, many threads at once.
bool File::TryWriteAligned(const char *data, uint64_t length, uint64_t offset, Attempt attempt) {
    const uint64_t lba = context_.lba_size;
    if (!IsAligned(offset, lba) || !IsAligned(length, lba)) {
        return false;
    }
    std::shared_lock<Gate> gate(gate_);
    const uint64_t durable = DurableBytes(offset, length);
    const bool whole_units =
        IsAligned(offset, ALLOCATION_UNIT_BYTES) && IsAligned(durable, ALLOCATION_UNIT_BYTES);
    if (!tail_.Empty() || commit_first_ != 0 || (durable > 0 && (!whole_units || offset < HEAD_BYTES))) {
        return false;
    }
    const uint64_t end = offset + length;
    const bool log_like = kind_ == FileKind::WAL || kind_ == FileKind::OTHER;
    if (log_like && end > Size() && length < DIRECT_APPEND_BYTES_MIN) {
        return false;
    }
    Growth growth(*this, attempt);
    ReserveForWrite(growth, offset, end, end > Size());
    if (end > Size()) {
        std::unique_lock<std::shared_mutex> guard(map_mutex_);
        EnsureUnits(AlignUp(end, ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES, growth);
        const uint64_t size = Size();
        if (end > size) {
            // A hole until the data is there: a Sync of another thread may publish this size before.
            holes_.Add(size, end - size);
            has_holes_ = holes_dirty_ = true;
            size_ = end;
        }
    }
    if (durable > 0) {
        WriteOutOfPlace(data, durable, offset, growth);
    }
    if (length > durable) {
        WriteDevice(data + durable, length - durable, offset + durable);
    }
    return true;
}

void File::WriteDevice(const char *data, uint64_t length, uint64_t offset) {
    Request request;
    request.opcode = Opcode::WRITE;
    // The device only reads from this memory.
    request.segments = Segments(const_cast<char *>(data), length, offset);
    for (const Segment &segment : request.segments) {
        context_.log.BeforeOverwrite(segment.device_offset, segment.length);
    }
    if (IsTemp()) {
        context_.spill.Write(request);
    } else {
        context_.io.Execute(request);
        unflushed_ = true;
    }
    if (has_holes_.load(std::memory_order_acquire)) {
        std::unique_lock<std::shared_mutex> guard(map_mutex_);
        RemoveHoles(offset, length);
    }
}

// How many bytes of the range, from its start, may not be
// overwritten in place: those that a mount would read.
uint64_t File::DurableBytes(uint64_t offset, uint64_t length) const {
    const uint64_t end = IsTemp() ? 0 : AlignUp(durable_size_, ALLOCATION_UNIT_BYTES);
    return offset < end ? std::min(length, end - offset) : 0;
}

// Replaces durable units, the last one perhaps in part. What a mount would read now stays as it is until the
// next publish switches to the new place: DuckDB rewrites blocks of metadata that its durable header refers
// to, and a torn write would leave neither the old content nor the new. Under the gate.
void File::WriteOutOfPlace(const char *data, uint64_t length, uint64_t offset, Growth &growth) {
    Moved moved;
    moved.units = AlignUp(length, ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES;
    const std::vector<Extent> fresh = AllocateOutOfPlace(offset / ALLOCATION_UNIT_BYTES, moved.units, growth);
    try {
        Request request;
        request.opcode = Opcode::WRITE;
        uint64_t done = 0;
        for (const Extent &extent : fresh) {
            const uint64_t piece = std::min(extent.units * ALLOCATION_UNIT_BYTES, length - done);
            context_.log.BeforeOverwrite(extent.start * ALLOCATION_UNIT_BYTES, piece);
            // The device only reads from this memory.
            request.segments.push_back(Segment{extent.start * ALLOCATION_UNIT_BYTES,
                                               const_cast<char *>(data) + done, piece, PlacementOf(kind_)});
            done += piece;
        }
        context_.io.Execute(request);
    } catch (...) {
        context_.space.Free(fresh);
        throw;
    }
    if (offset < HEAD_BYTES && fresh.size() == 1) {
        moved.checksum = DataChecksum{fresh.front().start * ALLOCATION_UNIT_BYTES,
                                      static_cast<uint32_t>(length), Crc32c(0, data, length)};
    } else {
        unflushed_ = true;
    }
    std::unique_lock<std::shared_mutex> guard(map_mutex_);
    try {
        SwitchTo(fresh, moved);
    } catch (...) {
        context_.space.Free(fresh);
        throw;
    }
    RemoveHoles(offset, length); // last: what is not switched to still reads as zeros
}

// Under the exclusive map mutex. All or nothing.
void File::SwitchTo(const std::vector<Extent> &fresh, const Moved &moved) {
    const uint64_t first = fresh.front().file_unit;
    const std::vector<Extent> old = map_.Slice(first, first + moved.units);
    const auto [place, is_new] = moved_.try_emplace(first);
    try {
        MakeRoom(replaced_, old.size());
        map_.Remap(fresh);
    } catch (...) {
        if (is_new) {
            moved_.erase(place);
        }
        throw;
    }
    Moved &entry = place->second;
    replaced_.insert(replaced_.end(), old.begin(), old.end());
    entry.units = std::max(entry.units, moved.units);
    entry.checksum = moved.checksum;
    // What is covered whole, and its checksum with it, counts no more.
    for (auto covered = moved_.upper_bound(first);
         covered != moved_.end() && covered->first + covered->second.units <= first + moved.units;) {
        covered = moved_.erase(covered);
    }
}

// Under the exclusive map mutex.
void File::RemoveHoles(uint64_t offset, uint64_t length) {
    if (holes_.Remove(offset, length)) {
        has_holes_ = !holes_.Empty();
        holes_dirty_ = true;
    }
}

// Everything that is not an aligned write in place, under the exclusive gate.
void File::WriteGated(const char *data, uint64_t length, uint64_t offset, Attempt attempt) {
    const uint64_t end = offset + length;
    FinishCommit();
    Growth growth(*this, attempt);
    ReserveForWrite(growth, offset, end, offset > Size());
    {
        std::unique_lock<std::shared_mutex> guard(map_mutex_);
        EnsureUnits(AlignUp(std::max(end, Size()), ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES, growth);
    }
    if (end > Size()) {
        OwnEnd(growth);
    }
    if (offset > Size()) {
        ExtendTo(offset);
    }
    const uint64_t device_end = std::min(end, tail_.Empty() ? Size() : tail_start_);
    if (offset < device_end) {
        OverwriteDevice(data, device_end - offset, offset, growth);
    }
    if (!tail_.Empty() && end > tail_start_ && offset < Size()) {
        const uint64_t from = std::max(offset, tail_start_);
        const uint64_t to = std::min(end, Size());
        memcpy(tail_.Data() + (from - tail_start_), data + (from - offset), to - from);
    }
    if (end > Size()) {
        const uint64_t size = Size();
        AppendGated(data + (size - offset), end - size);
    }
    RequireTail();
}

void File::AppendGated(const char *data, uint64_t length) {
    const uint64_t lba = context_.lba_size;
    while (length > 0) {
        if (tail_.Empty()) {
            tail_start_ = Size();
        }
        uint64_t piece = 0;
        if (tail_.Empty() && length >= DIRECT_APPEND_BYTES_MIN) {
            piece = AlignDown(length, lba);
            WriteDevice(data, piece, tail_start_);
        } else {
            piece = std::min(length, TAIL_BYTES_MAX - tail_.Size());
            tail_.Append(data, piece);
        }
        data += piece;
        length -= piece;
        size_ += piece;
        if (tail_.Size() == TAIL_BYTES_MAX) {
            DrainTail();
        }
    }
}

// Fills the gap between the end of the file and `offset`: bytes of a partial LBA, then a hole, then bytes.
void File::ExtendTo(uint64_t offset) {
    const uint64_t lba = context_.lba_size;
    static const char zeros[ALLOCATION_UNIT_BYTES] = {};
    const uint64_t to_boundary = std::min(offset - Size(), AlignUp(Size(), lba) - Size());
    AppendGated(zeros, to_boundary);
    const uint64_t hole_end = AlignDown(offset, lba);
    if (hole_end > Size()) {
        DrainTail();
        std::unique_lock<std::shared_mutex> guard(map_mutex_);
        holes_.Add(Size(), hole_end - Size());
        has_holes_ = holes_dirty_ = true;
        size_ = hole_end;
    }
    AppendGated(zeros, offset - Size());
}

// Writes the whole LBAs of the tail. The LBA that the durable tail belongs to may be overwritten: a mount
// takes its bytes from the record.
void File::DrainTail() {
    const uint64_t whole = AlignDown(tail_.Size(), context_.lba_size);
    if (whole == 0) {
        return;
    }
    WriteDevice(tail_.Data(), whole, tail_start_);
    tail_.DropFront(whole);
    tail_start_ += whole;
}

void File::OverwriteDevice(const char *data, uint64_t length, uint64_t offset, Growth &growth) {
    while (const uint64_t durable = DurableBytes(offset, length)) {
        const uint64_t into = offset % ALLOCATION_UNIT_BYTES;
        const bool whole = into == 0 && durable >= ALLOCATION_UNIT_BYTES && offset >= HEAD_BYTES;
        const uint64_t piece = whole ? AlignDown(durable, ALLOCATION_UNIT_BYTES)
                                     : std::min(durable, ALLOCATION_UNIT_BYTES - into);
        if (whole) {
            WriteOutOfPlace(data, piece, offset, growth);
        } else {
            ReplacePart(data, piece, offset, growth);
        }
        data += piece;
        offset += piece;
        length -= piece;
    }
    const uint64_t lba = context_.lba_size;
    const uint64_t head = std::min(length, AlignUp(offset, lba) - offset);
    const uint64_t middle = AlignDown(length - head, lba);
    if (head > 0) {
        MergeUnaligned(data, head, offset);
    }
    if (middle > 0) {
        WriteDevice(data + head, middle, offset + head);
    }
    if (length > head + middle) {
        MergeUnaligned(data + head + middle, length - head - middle, offset + head + middle);
    }
}

// Part of one LBA: its other bytes stay.
void File::MergeUnaligned(const char *data, uint64_t length, uint64_t offset) {
    const uint64_t lba = context_.lba_size;
    AlignedBuffer buffer(lba);
    const uint64_t begin = AlignDown(offset, lba);
    ReadDevice(buffer.Data(), lba, begin);
    memcpy(buffer.Data() + (offset - begin), data, length);
    WriteDevice(buffer.Data(), lba, begin);
}

// Bytes within one durable unit: the rest of it goes along.
void File::ReplacePart(const char *data, uint64_t length, uint64_t offset, Growth &growth) {
    const uint64_t begin = AlignDown(offset, ALLOCATION_UNIT_BYTES);
    const uint64_t device_end = tail_.Empty() ? Size() : tail_start_;
    const uint64_t valid = std::min(ALLOCATION_UNIT_BYTES, device_end - begin);
    AlignedBuffer content(valid);
    if (length < valid) {
        ReadDevice(content.Data(), valid, begin);
    }
    memcpy(content.Data() + (offset - begin), data, length);
    WriteOutOfPlace(content.Data(), valid, begin, growth);
}

} // namespace rawduck
