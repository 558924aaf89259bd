#include "volume/format/salvage_read.hpp"

#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "common/memory/aligned_buffer.hpp"

#include <cstring>

namespace rawduck {

namespace {

//! False when the device could not.
bool TryRead(BlockIo &io, uint64_t device_offset, char *data, uint64_t length, bool last_attempt,
             std::string &error) {
    try {
        io.Read(device_offset, data, length);
        return true;
    } catch (const Error &failure) {
        if (failure.Code() != ErrorCode::IO || last_attempt) {
            throw;
        }
        error = failure.what();
        return false;
    }
}

// Halves a range that fails until single LBAs are left.
// `limit`: how many unreadable ones there may be in all.
void ReadHalves(BlockIo &io, uint64_t device_offset, char *data, uint64_t length, size_t limit,
                UnreadableLbas &unreadable) {
    std::string error;
    if (TryRead(io, device_offset, data, length, unreadable.size() >= limit, error)) {
        return;
    }
    const uint64_t lba = io.Caps().lba_size;
    if (length <= lba) {
        memset(data, 0, length);
        unreadable[device_offset] = error;
        return;
    }
    const uint64_t half = AlignUp(length / 2, lba);
    ReadHalves(io, device_offset, data, half, limit, unreadable);
    ReadHalves(io, device_offset + half, data + half, length - half, limit, unreadable);
}

} // namespace

std::string ErrorWithin(const UnreadableLbas &unreadable, uint64_t device_offset, uint64_t length) {
    const auto next = unreadable.lower_bound(device_offset);
    return next != unreadable.end() && next->first < device_offset + length ? next->second : "";
}

void ReadAround(BlockIo &io, uint64_t device_offset, char *data, uint64_t length,
                UnreadableLbas &unreadable) {
    ReadHalves(io, device_offset, data, length, unreadable.size() + UNREADABLE_LBAS_MAX, unreadable);
}

DataState ExamineData(BlockIo &io, const DataPlace &place, const std::vector<Item> &items,
                      UnreadableLbas &unreadable) {
    const uint64_t data_end = place.end * ALLOCATION_UNIT_BYTES;
    for (const Item &item : items) {
        for (const DataChecksum &range : item.checksums) {
            const bool sane = IsAligned(range.device_offset, place.lba_size) &&
                              IsAligned(range.length, place.lba_size) &&
                              range.device_offset >= place.start * ALLOCATION_UNIT_BYTES &&
                              range.length <= RECORD_BYTES_MAX && range.length <= data_end &&
                              range.device_offset <= data_end - range.length;
            if (!sane) {
                return DataState::TORN;
            }
            AlignedBuffer buffer(range.length);
            ReadAround(io, range.device_offset, buffer.Data(), range.length, unreadable);
            const bool readable = ErrorWithin(unreadable, range.device_offset, range.length).empty();
            if (readable && Crc32c(0, buffer.Data(), range.length) != range.crc) {
                return DataState::TORN;
            }
        }
    }
    return unreadable.empty() ? DataState::WHOLE : DataState::UNREADABLE;
}

} // namespace rawduck
