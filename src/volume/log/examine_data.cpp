#include "volume/log/examine_data.hpp"

#include "common/crc32c.hpp"
#include "common/memory/aligned_buffer.hpp"

namespace rawduck {

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
