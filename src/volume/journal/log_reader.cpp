#include "volume/journal/log_reader.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

bool LogReader::RecordAt(uint64_t position, uint64_t epoch, RecordHeader &header, const char *&payload) {
    const char *data = Load(position, sizeof(RecordHeader));
    const uint64_t claimed = ClaimedRecordBytes(epoch, data, Available(position));
    if (claimed == 0 || claimed > RECORD_BYTES_MAX) {
        return false;
    }
    data = Load(position, claimed);
    payload = data + sizeof(RecordHeader);
    return CheckRecord(uuid_, epoch, data, Available(position), header);
}

// A header that can be read and is of another epoch, or none, was never followed by anything durable.
std::string LogReader::ErrorAt(uint64_t position, uint64_t epoch) {
    const char *data = Load(position, sizeof(RecordHeader));
    const uint64_t claimed = ClaimedRecordBytes(epoch, data, Available(position));
    const uint64_t length = std::min(std::max<uint64_t>(claimed, lba_size_), RECORD_BYTES_MAX);
    return ErrorWithin(unreadable_, start_ + position, length);
}

uint64_t LogReader::RecordBehind(uint64_t position, uint64_t epoch) {
    const uint64_t limit = std::min(bytes_, position + RECORD_BYTES_MAX + 1);
    RecordHeader header;
    const char *payload = nullptr;
    Load(position, limit - position); // at once
    for (uint64_t at = position + lba_size_; at < limit; at += lba_size_) {
        if (RecordAt(at, epoch, header, payload)) {
            return at;
        }
    }
    return 0;
}

std::vector<Item> LogReader::ItemsFrom(uint64_t position, uint64_t epoch) {
    std::vector<Item> items;
    RecordHeader header;
    const char *payload = nullptr;
    while (position < bytes_) {
        const uint64_t claimed = ClaimedEpochAt(position);
        if (claimed < epoch || !RecordAt(position, claimed, header, payload)) {
            position += lba_size_;
            continue;
        }
        std::string problem;
        std::vector<Item> found;
        if (ParseItems(payload, header.payload_bytes, found, problem)) {
            items.insert(items.end(), found.begin(), found.end());
        }
        position += RecordFootprint(header.payload_bytes, lba_size_);
    }
    return items;
}

uint64_t LogReader::LaterEpoch(uint64_t epoch, uint64_t bytes) {
    const uint64_t begin = window_start_, end = std::min(bytes_, begin + bytes);
    Load(begin, std::min(end - begin, RECORD_BYTES_MAX));
    for (uint64_t at = begin; at < end; at += lba_size_) {
        const uint64_t found = EpochAt(at);
        if (found > epoch) {
            return found;
        }
    }
    return 0;
}

uint64_t LogReader::EpochAt(uint64_t position) {
    const uint64_t claimed = ClaimedEpochAt(position);
    RecordHeader header;
    const char *payload = nullptr;
    return claimed != 0 && RecordAt(position, claimed, header, payload) ? claimed : 0;
}

uint64_t LogReader::ClaimedEpochAt(uint64_t position) {
    const char *data = Load(position, sizeof(RecordHeader));
    RecordHeader header;
    if (Available(position) < sizeof header) {
        return 0;
    }
    memcpy(&header, data, sizeof header);
    return ClaimedRecordBytes(header.epoch, data, sizeof header) != 0 ? header.epoch : 0;
}

// Moves the window so that it holds `length` bytes at `position`, or what there is of them.
const char *LogReader::Load(uint64_t position, uint64_t length) {
    const uint64_t wanted = std::min(bytes_, position + length);
    if (wanted > filled_) {
        const uint64_t keep_from = std::min(AlignDown(position, ALLOCATION_UNIT_BYTES), filled_);
        window_.DropFront(keep_from - window_start_);
        window_start_ = keep_from;
        const uint64_t until =
            std::min(bytes_, std::max(AlignUp(wanted, ALLOCATION_UNIT_BYTES), filled_ + read_bytes_));
        const uint64_t kept = window_.Size();
        window_.Resize(until - window_start_);
        ReadAround(io_, start_ + filled_, window_.Data() + kept, until - filled_, unreadable_);
        filled_ = until;
        read_bytes_ = std::min(2 * read_bytes_, READ_BYTES_MAX);
    }
    return window_.Data() + (position - window_start_);
}

} // namespace rawduck
