#include "volume/file/file.hpp"

#include "common/error.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {
//! Unaligned reads up to this length go through one buffer; longer ones read their aligned middle directly.
constexpr uint64_t UNALIGNED_BYTES_MAX = 64 * KIB;

struct GateHold final : StorageFile::Hold {
    explicit GateHold(Gate &gate) : lock(gate) {}
    const std::shared_lock<Gate> lock;
};
} // namespace

uint64_t File::Read(char *data, uint64_t length, uint64_t offset) {
    std::shared_lock<Gate> gate(gate_);
    const uint64_t size = Size();
    if (offset >= size) {
        return 0;
    }
    length = std::min(length, size - offset);
    const uint64_t end = offset + length;
    const uint64_t device_end = tail_.Empty() ? end : std::min(end, tail_start_);
    if (offset < device_end) {
        ReadDevice(data, device_end - offset, offset);
    }
    if (end > device_end) {
        const uint64_t from = std::max(offset, device_end);
        memcpy(data + (from - offset), tail_.Data() + (from - tail_start_), end - from);
    }
    return length;
}

void File::ReadRanges(const std::vector<StorageFile::Range> &ranges) {
    std::shared_lock<Gate> gate(gate_);
    const uint64_t device_end = tail_.Empty() ? Size() : std::min(Size(), tail_start_);
    Request request;
    request.opcode = Opcode::READ;
    std::vector<StorageFile::Range> others; // that need more than commands of whole LBAs
    for (const StorageFile::Range &range : ranges) {
        if (IsTemp() || range.offset + range.length > device_end ||
            !IsAligned(range.offset, context_.lba_size) || !IsAligned(range.length, context_.lba_size)) {
            others.push_back(range);
            continue;
        }
        const std::vector<Segment> segments = Segments(range.data, range.length, range.offset);
        RequireNotOverwritten(segments, range.offset);
        request.segments.insert(request.segments.end(), segments.begin(), segments.end());
    }
    if (!request.segments.empty()) {
        context_.io.Execute(request);
    }
    if (has_holes_.load(std::memory_order_acquire)) {
        std::shared_lock<std::shared_mutex> guard(map_mutex_);
        for (const StorageFile::Range &range : ranges) {
            holes_.ZeroFill(range.data, range.offset, range.length);
        }
    }
    gate.unlock();
    for (const StorageFile::Range &range : others) {
        if (Read(range.data, range.length, range.offset) != range.length) {
            throw Error(ErrorCode::IO, context_.io.TargetName() + ": \"" + Name() + "\" ends before byte " +
                                           std::to_string(range.offset + range.length) +
                                           ", which was to be read");
        }
    }
}

std::vector<StorageFile::MemoryPiece> File::Pin(const std::vector<StorageFile::Range> &ranges,
                                                MemoryPinner &pinner,
                                                std::unique_ptr<StorageFile::Hold> &hold) {
    if (!hold) {
        hold = std::make_unique<GateHold>(gate_);
    }
    const uint64_t device_end = tail_.Empty() ? Size() : std::min(Size(), tail_start_);
    std::vector<StorageFile::MemoryPiece> pieces;
    for (const StorageFile::Range &range : ranges) {
        if (IsTemp() || range.offset + range.length > device_end ||
            !IsAligned(range.offset, context_.lba_size) || !IsAligned(range.length, context_.lba_size)) {
            return {};
        }
        const std::vector<Segment> segments = Places(range.length, range.offset);
        RequireNotOverwritten(segments, range.offset);
        for (const Segment &segment : segments) {
            for (uint64_t done = 0, length = 0; done < segment.length; done += length) {
                length = segment.length - done;
                const char *data = context_.io.PinnedMemory(segment.device_offset + done, length, pinner);
                if (!data) {
                    return {};
                }
                pieces.push_back({data, length});
            }
        }
        std::shared_lock<std::shared_mutex> guard(map_mutex_);
        if (holes_.Touches(range.offset, range.length)) {
            return {};
        }
    }
    return pieces;
}

std::vector<Segment> File::Places(uint64_t length, uint64_t offset) const {
    std::vector<Segment> segments;
    std::shared_lock<std::shared_mutex> guard(map_mutex_);
    while (length > 0) {
        uint64_t contiguous = 0;
        const uint64_t device_offset = map_.Locate(offset, contiguous);
        const uint64_t piece = std::min(length, contiguous);
        segments.push_back(Segment{device_offset, nullptr, piece, PlacementOf(kind_)});
        offset += piece;
        length -= piece;
    }
    return segments;
}

std::vector<Segment> File::Segments(char *data, uint64_t length, uint64_t offset) const {
    std::vector<Segment> segments = Places(length, offset);
    for (Segment &segment : segments) {
        segment.data = data;
        data += segment.length;
    }
    return segments;
}

// It may be a block of the same database, of another time, with a checksum of its own that is right.
void File::RequireNotOverwritten(const std::vector<Segment> &segments, uint64_t offset) const {
    for (const Segment &segment : segments) {
        for (const Extent &lost : context_.overwritten) {
            const uint64_t begin = lost.start * ALLOCATION_UNIT_BYTES,
                           end = begin + lost.units * ALLOCATION_UNIT_BYTES;
            if (segment.device_offset < end && begin < segment.device_offset + segment.length) {
                throw Error(
                    ErrorCode::CORRUPT,
                    context_.io.TargetName() + ": \"" + Name() + "\" cannot be read at offset " +
                        std::to_string(offset) +
                        ": the metadata log is damaged, and behind the damage this space was given to "
                        "other data; `rawduck check` says more");
            }
        }
        offset += segment.length;
    }
}

void File::ReadDevice(char *data, uint64_t length, uint64_t offset) const {
    if (IsAligned(offset, context_.lba_size) && IsAligned(length, context_.lba_size)) {
        Request request;
        request.opcode = Opcode::READ;
        request.reread = kind_ == FileKind::DATABASE;
        request.segments = Segments(data, length, offset);
        if (IsTemp()) {
            context_.spill.Read(request);
        } else {
            RequireNotOverwritten(request.segments, offset);
            context_.io.Execute(request);
        }
    } else {
        ReadUnaligned(data, length, offset);
    }
    if (has_holes_.load(std::memory_order_acquire)) {
        std::shared_lock<std::shared_mutex> guard(map_mutex_);
        holes_.ZeroFill(data, offset, length);
    }
}

void File::ReadUnaligned(char *data, uint64_t length, uint64_t offset) const {
    const uint64_t lba = context_.lba_size;
    if (length <= UNALIGNED_BYTES_MAX) {
        const uint64_t begin = AlignDown(offset, lba);
        AlignedBuffer buffer(AlignUp(offset + length, lba) - begin);
        ReadDevice(buffer.Data(), buffer.Size(), begin);
        memcpy(data, buffer.Data() + (offset - begin), length);
        return;
    }
    const uint64_t head = AlignUp(offset, lba) - offset;
    const uint64_t middle = AlignDown(length - head, lba);
    if (head > 0) {
        ReadUnaligned(data, head, offset);
    }
    ReadDevice(data + head, middle, offset + head);
    if (length > head + middle) {
        ReadUnaligned(data + head + middle, length - head - middle, offset + head + middle);
    }
}

} // namespace rawduck
