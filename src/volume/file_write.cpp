#include "volume/file.hpp"

#include "common/clock.hpp"
#include "common/error.hpp"
#include "volume/format/crc32c.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

//! DuckDB's three headers: pages in this range are replaced by writing elsewhere, so that a torn write never
//! damages the page that counts.
constexpr uint64_t HEAD_BYTES = 3 * UNIT_SIZE;
//! Appended bytes are collected up to this length before they are written.
constexpr uint64_t TAIL_BYTES_MAX = 1 * MIB;
//! Aligned appends from this length on go straight to the target.
constexpr uint64_t DIRECT_APPEND_BYTES_MIN = 64 * KIB;
//! A file grows by as much as it has, within these bounds.
constexpr uint64_t GROWTH_UNITS_MIN = 1 * MIB / UNIT_SIZE;
constexpr uint64_t GROWTH_UNITS_MAX = 64 * MIB / UNIT_SIZE;
//! ... and never by more than this share of the free space, so that a nearly full volume is shared fairly.
constexpr uint64_t GROWTH_FREE_SHARE = 8;

} // namespace

void File::Write(const char *data, uint64_t length, uint64_t offset) {
    if (length == 0) {
        return;
    }
    if (offset + length < offset) {
        throw Error(ErrorCode::INVALID, context_.io.TargetName() + "/" + Name() + ": a write of " +
                                            std::to_string(length) + " bytes at offset " +
                                            std::to_string(offset) + " exceeds the largest possible file");
    }
    if (!TryWriteInPlace(data, length, offset)) {
        std::unique_lock<Gate> gate(gate_);
        WriteGated(data, length, offset);
    }
    modified_us_ = NowUs();
}

uint64_t File::Append(const char *data, uint64_t length) {
    std::unique_lock<Gate> gate(gate_);
    const uint64_t offset = Size();
    WriteGated(data, length, offset);
    modified_us_ = NowUs();
    return offset;
}

// The path of database blocks and spilled blocks: aligned, in place, many threads at once.
bool File::TryWriteInPlace(const char *data, uint64_t length, uint64_t offset) {
    const uint64_t lba = context_.lba_size;
    if (!IsAligned(offset, lba) || !IsAligned(length, lba)) {
        return false;
    }
    std::shared_lock<Gate> gate(gate_);
    if (!tail_.Empty() || IsDurableHead(offset)) {
        return false;
    }
    const uint64_t end = offset + length;
    const bool log_like = kind_ == FileKind::WAL || kind_ == FileKind::OTHER;
    if (log_like && end > Size() && length < DIRECT_APPEND_BYTES_MIN) {
        return false;
    }
    if (end > Size()) {
        std::unique_lock<std::shared_mutex> guard(map_mutex_);
        EnsureUnits(AlignUp(end, UNIT_SIZE) / UNIT_SIZE);
        const uint64_t size = Size();
        if (end > size) {
            // A hole until the data is there: a Sync of another thread may publish this size before.
            holes_.Add(size, end - size);
            has_holes_ = holes_dirty_ = true;
            size_ = end;
        }
    }
    WriteDevice(data, length, offset);
    return true;
}

void File::WriteDevice(const char *data, uint64_t length, uint64_t offset) {
    WriteVerified(data, length, offset);
    if (!IsTemp()) {
        unflushed_ = true;
    }
}

// For callers that put a VERIFY item for the range into the record that publishes it.
void File::WriteVerified(const char *data, uint64_t length, uint64_t offset) {
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
    }
    if (has_holes_.load(std::memory_order_acquire)) {
        std::unique_lock<std::shared_mutex> guard(map_mutex_);
        RemoveHoles(offset, length);
    }
}

// Under the exclusive map mutex.
void File::RemoveHoles(uint64_t offset, uint64_t length) {
    if (!holes_.Empty()) {
        holes_.Remove(offset, length);
        has_holes_ = !holes_.Empty();
        holes_dirty_ = true;
    }
}

bool File::IsDurableHead(uint64_t offset) const {
    return offset < HEAD_BYTES && offset < durable_size_ && !IsTemp();
}

// Under the exclusive map mutex. All or nothing: a file that does not fit leaves the space to others.
void File::EnsureUnits(uint64_t units) {
    const SpaceUse use = kind_ == FileKind::WAL ? SpaceUse::LOG : SpaceUse::CONTENT;
    const uint64_t units_before = map_.Units();
    while (map_.Units() < units) {
        const uint64_t missing = units - map_.Units();
        const uint64_t growth = std::min(std::max(map_.Units(), GROWTH_UNITS_MIN), GROWTH_UNITS_MAX);
        const uint64_t fair = context_.space.FreeUnits() / GROWTH_FREE_SHARE;
        const uint64_t wanted = std::max(missing, std::min(growth, fair));
        const Allocator::Result found = context_.space.Allocate(wanted, map_.End(), IsTemp(), use);
        if (found.units == 0) {
            context_.space.Free(map_.Truncate(units_before));
            throw Error(ErrorCode::NO_SPACE, context_.io.TargetName() +
                                                 ": the volume is full: cannot grow \"" + Name() + "\" by " +
                                                 std::to_string(missing * UNIT_SIZE) +
                                                 " bytes; remove files from it, or use a larger volume");
        }
        map_.Append(found.start, found.units);
    }
}

// Everything that is not an aligned write in place, under the exclusive gate.
void File::WriteGated(const char *data, uint64_t length, uint64_t offset) {
    const uint64_t end = offset + length;
    {
        std::unique_lock<std::shared_mutex> guard(map_mutex_);
        EnsureUnits(AlignUp(std::max(end, Size()), UNIT_SIZE) / UNIT_SIZE);
    }
    if (offset > Size()) {
        ExtendTo(offset);
    }
    const uint64_t device_end = std::min(end, tail_.Empty() ? Size() : tail_start_);
    if (offset < device_end) {
        OverwriteDevice(data, device_end - offset, offset);
    }
    if (!tail_.Empty() && end > tail_start_ && offset < Size()) {
        const uint64_t from = std::max(offset, tail_start_);
        const uint64_t to = std::min(end, Size());
        memcpy(tail_.Data() + (from - tail_start_), data + (from - offset), to - from);
        tail_dirty_ = true;
    }
    if (end > Size()) {
        const uint64_t size = Size();
        AppendGated(data + (size - offset), end - size);
    }
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
    static const char zeros[UNIT_SIZE] = {};
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

void File::OverwriteDevice(const char *data, uint64_t length, uint64_t offset) {
    while (length > 0 && IsDurableHead(offset)) {
        const uint64_t page = offset / UNIT_SIZE;
        const uint64_t into = offset % UNIT_SIZE;
        const uint64_t piece = std::min(length, UNIT_SIZE - into);
        WriteShadowPage(page, data, piece, into);
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

void File::WriteShadowPage(uint64_t page, const char *data, uint64_t length, uint64_t into) {
    const uint64_t begin = page * UNIT_SIZE;
    const uint64_t device_end = tail_.Empty() ? Size() : tail_start_;
    const uint64_t valid = std::min(UNIT_SIZE, device_end - begin);
    AlignedBuffer content(valid);
    if (length < valid) {
        ReadDevice(content.Data(), valid, begin);
    }
    memcpy(content.Data() + into, data, length);
    auto shadow = shadows_.find(page);
    if (shadow == shadows_.end()) {
        const Unit fresh = WriteFreshPage(content);
        std::unique_lock<std::shared_mutex> guard(map_mutex_);
        RemoveHoles(begin, valid);
        Shadow entry;
        entry.durable = map_.Remap(page, fresh);
        entry.verify.device_offset = ToBytes(fresh);
        shadow = shadows_.emplace(page, entry).first;
    } else {
        WriteVerified(content.Data(), valid, begin);
    }
    shadow->second.verify.length = static_cast<uint32_t>(valid);
    shadow->second.verify.crc = Crc32c(0, content.Data(), valid);
}

// A new unit with this content; on failure the file is as before.
Unit File::WriteFreshPage(const AlignedBuffer &content) {
    const Allocator::Result fresh = context_.space.Allocate(1, Unit{0}, false, SpaceUse::HEADER);
    if (fresh.units == 0) {
        throw Error(ErrorCode::NO_SPACE, context_.io.TargetName() +
                                             ": the volume is full: no space to replace a header page of \"" +
                                             Name() + "\"; remove files from it");
    }
    try {
        context_.io.Write(ToBytes(fresh.start), content.Data(), content.Size(), PlacementOf(kind_));
    } catch (...) {
        context_.space.Free({Extent{0, Index(fresh.start), 1}});
        throw;
    }
    return fresh.start;
}

} // namespace rawduck
