#include "volume/format/record.hpp"

#include "common/crc32c.hpp"

#include <cstring>

namespace rawduck {

namespace {

constexpr char RECORD_MAGIC[4] = {'R', 'D', 'L', 'G'};
constexpr uint64_t ITEM_ALIGNMENT = 8;

//! 16 bytes before the body of each item. `bytes` includes this header and the padding to 8 bytes.
struct ItemHeader {
    uint16_t type;
    uint16_t kind; //!< of CREATE and CLONE
    uint32_t bytes;
    uint64_t file_id;
};
static_assert(sizeof(ItemHeader) == ITEM_HEADER_BYTES, "layout is part of the format");

struct SizeBody {
    uint64_t size;
    int64_t modified_us;
    uint32_t tail_bytes;
    uint32_t reserved;
};
static_assert(sizeof(SizeBody) == 24, "layout is part of the format");

struct NameBody {
    int64_t time_us;
    uint64_t other_id; //!< of MOVE the file that is replaced, of CLONE the source
    uint32_t name_bytes;
    uint32_t reserved;
};
static_assert(sizeof(NameBody) == 24, "layout is part of the format");

template <class T> void AppendRaw(std::string &out, const T *values, size_t count) {
    out.append(reinterpret_cast<const char *>(values), sizeof(T) * count);
}

template <class T> bool TakeArray(const char *body, size_t length, std::vector<T> &out) {
    if (length % sizeof(T) != 0) {
        return false;
    }
    out.resize(length / sizeof(T));
    if (length > 0) {
        memcpy(static_cast<void *>(out.data()), body, length);
    }
    return true;
}

template <class BODY>
bool TakeText(const char *body, size_t length, BODY &fixed, uint32_t BODY::*text_bytes, std::string &text) {
    if (length < sizeof(BODY)) {
        return false;
    }
    memcpy(&fixed, body, sizeof(BODY));
    if (AlignUp(fixed.*text_bytes, ITEM_ALIGNMENT) != length - sizeof(BODY)) {
        return false;
    }
    text.assign(body + sizeof(BODY), fixed.*text_bytes);
    return true;
}

void AppendBody(std::string &out, const Item &item) {
    switch (item.type) {
    case ItemType::CREATE:
    case ItemType::MOVE:
    case ItemType::CLONE: {
        const uint64_t other_id = item.type == ItemType::CLONE ? item.source_id : item.replaced_id;
        NameBody body{item.time_us, other_id, static_cast<uint32_t>(item.name.size()), 0};
        AppendRaw(out, &body, 1);
        out += item.name;
        break;
    }
    case ItemType::SIZE:
    case ItemType::TRUNCATE: {
        SizeBody body{item.size, item.time_us, static_cast<uint32_t>(item.tail.size()), 0};
        AppendRaw(out, &body, 1);
        out += item.tail;
        break;
    }
    case ItemType::EXTENTS:
    case ItemType::REMAP:
        AppendRaw(out, item.extents.data(), item.extents.size());
        break;
    case ItemType::HOLES:
        AppendRaw(out, item.holes.data(), item.holes.size());
        break;
    case ItemType::DATA_CHECKSUM:
        AppendRaw(out, item.checksums.data(), item.checksums.size());
        break;
    case ItemType::REMOVE:
        break;
    }
}

bool ParseBody(const char *body, size_t length, Item &item) {
    switch (item.type) {
    case ItemType::CREATE:
    case ItemType::MOVE:
    case ItemType::CLONE: {
        NameBody fixed;
        if (!TakeText(body, length, fixed, &NameBody::name_bytes, item.name)) {
            return false;
        }
        item.time_us = fixed.time_us;
        (item.type == ItemType::CLONE ? item.source_id : item.replaced_id) = fixed.other_id;
        return true;
    }
    case ItemType::SIZE:
    case ItemType::TRUNCATE: {
        SizeBody fixed;
        if (!TakeText(body, length, fixed, &SizeBody::tail_bytes, item.tail)) {
            return false;
        }
        item.size = fixed.size;
        item.time_us = fixed.modified_us;
        return true;
    }
    case ItemType::EXTENTS:
    case ItemType::REMAP:
        return TakeArray(body, length, item.extents);
    case ItemType::HOLES:
        return TakeArray(body, length, item.holes);
    case ItemType::DATA_CHECKSUM:
        return TakeArray(body, length, item.checksums);
    case ItemType::REMOVE:
        return length == 0;
    }
    return false;
}

uint32_t RecordCrc(const Uuid &uuid, RecordHeader header, const char *payload) {
    header.crc = 0;
    uint32_t crc = Crc32c(0, uuid.data(), uuid.size());
    crc = Crc32c(crc, &header, sizeof(header));
    return Crc32c(crc, payload, header.payload_bytes);
}

} // namespace

void AppendItem(std::string &out, const Item &item) {
    const size_t begin = out.size();
    ItemHeader header{static_cast<uint16_t>(item.type), item.kind, 0, item.file_id};
    AppendRaw(out, &header, 1);
    AppendBody(out, item);
    out.resize(begin + AlignUp(out.size() - begin, ITEM_ALIGNMENT), '\0');
    header.bytes = static_cast<uint32_t>(out.size() - begin);
    memcpy(&out[begin], &header, sizeof(header));
}

uint64_t ItemBytes(const Item &item) {
    uint64_t bytes = sizeof(ItemHeader);
    switch (item.type) {
    case ItemType::CREATE:
    case ItemType::MOVE:
    case ItemType::CLONE:
        bytes += sizeof(NameBody) + item.name.size();
        break;
    case ItemType::SIZE:
    case ItemType::TRUNCATE:
        bytes += sizeof(SizeBody) + item.tail.size();
        break;
    case ItemType::EXTENTS:
    case ItemType::REMAP:
        bytes += sizeof(Extent) * item.extents.size();
        break;
    case ItemType::HOLES:
        bytes += sizeof(Hole) * item.holes.size();
        break;
    case ItemType::DATA_CHECKSUM:
        bytes += sizeof(DataChecksum) * item.checksums.size();
        break;
    case ItemType::REMOVE:
        break;
    }
    return AlignUp(bytes, ITEM_ALIGNMENT);
}

bool ParseItems(const char *data, size_t length, std::vector<Item> &items, std::string &problem) {
    size_t position = 0;
    while (position < length) {
        ItemHeader header;
        if (length - position < sizeof(header)) {
            problem = "an item is cut off at byte " + std::to_string(position);
            return false;
        }
        memcpy(&header, data + position, sizeof(header));
        if (header.bytes < sizeof(header) || header.bytes % ITEM_ALIGNMENT != 0 ||
            header.bytes > length - position) {
            problem = "the item at byte " + std::to_string(position) + " has an impossible length";
            return false;
        }
        Item item;
        item.type = static_cast<ItemType>(header.type);
        item.kind = static_cast<uint8_t>(header.kind);
        item.file_id = header.file_id;
        if (!ParseBody(data + position + sizeof(header), header.bytes - sizeof(header), item)) {
            problem = "the item at byte " + std::to_string(position) + " (type " +
                      std::to_string(header.type) + ") cannot be read";
            return false;
        }
        items.push_back(std::move(item));
        position += header.bytes;
    }
    return true;
}

std::string SealRecord(const Uuid &uuid, uint64_t epoch, uint64_t sequence, int64_t now_us,
                       const std::string &payload, uint32_t item_count, uint32_t lba_size,
                       const LogEnding &before) {
    RecordHeader header{};
    header.before = before;
    memcpy(header.magic, RECORD_MAGIC, sizeof(RECORD_MAGIC));
    header.epoch = epoch;
    header.sequence = sequence;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    header.item_count = item_count;
    header.time_us = now_us;
    header.crc = RecordCrc(uuid, header, payload.data());
    std::string record(reinterpret_cast<const char *>(&header), sizeof(header));
    record += payload;
    record.resize(RecordFootprint(payload.size(), lba_size), '\0');
    return record;
}

uint64_t ClaimedRecordBytes(uint64_t epoch, const char *data, size_t available) {
    RecordHeader header;
    if (available < sizeof(header)) {
        return 0;
    }
    memcpy(&header, data, sizeof(header));
    const bool ours = memcmp(header.magic, RECORD_MAGIC, sizeof(RECORD_MAGIC)) == 0 && header.epoch == epoch;
    return ours ? sizeof(header) + uint64_t(header.payload_bytes) : 0;
}

bool CheckRecord(const Uuid &uuid, uint64_t epoch, const char *data, size_t available, RecordHeader &header) {
    const uint64_t claimed = ClaimedRecordBytes(epoch, data, available);
    if (claimed == 0 || claimed > available) {
        return false;
    }
    memcpy(&header, data, sizeof(header));
    return header.crc == RecordCrc(uuid, header, data + sizeof(header));
}

uint64_t RecordFootprint(uint64_t payload_bytes, uint32_t lba_size) {
    return AlignUp(sizeof(RecordHeader) + payload_bytes, lba_size);
}

} // namespace rawduck
