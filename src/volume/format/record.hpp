//! The metadata language: items say what changed, a record carries the items of one commit, a snapshot is a
//! run of items that builds the whole state. One encoder and one decoder serve all three.
//!
//! Invariants of the log: records lie back to back, each starting at a multiple of the LBA size; sequence
//! numbers are consecutive; a record is written only after its predecessor is durable. So the first record
//! that is not valid is the torn tail, unless a valid record of the same epoch lies behind it: then it is
//! damaged.
#pragma once

#include "common/units.hpp"
#include "volume/format/superblock.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rawduck {

//! A piece of a file: `units` allocation units from file unit `file_unit`, at `start` on the target.
struct Extent {
    uint64_t file_unit = 0;
    uint64_t start = 0;
    uint64_t units = 0;
};
static_assert(sizeof(Extent) == 24, "layout is part of the format");

//! A range of a file that was never written and reads as zeros, in bytes.
struct Hole {
    uint64_t offset = 0;
    uint64_t length = 0;
};
static_assert(sizeof(Hole) == 16, "layout is part of the format");
inline bool operator==(const Hole &a, const Hole &b) {
    return a.offset == b.offset && a.length == b.length;
}

//! Bytes on the target (outside the metadata) that must have this checksum for the record to count: they were
//! written together with it, under the same flush.
struct DataChecksum {
    uint64_t device_offset = 0;
    uint32_t length = 0;
    uint32_t crc = 0;
};
static_assert(sizeof(DataChecksum) == 16, "layout is part of the format");

enum class ItemType : uint16_t {
    CREATE = 1,        //!< file_id, kind, created_us, name
    EXTENTS = 2,       //!< file_id, extents that continue the file's coverage
    REMAP = 3,         //!< file_id, extents (units each 1) that replace the mapping of those file units
    SIZE = 4,          //!< file_id, size, modified_us, tail: the bytes of the partial last LBA
    TRUNCATE = 5,      //!< as SIZE, and everything beyond is given up
    HOLES = 6,         //!< file_id, all holes of the file: replaces the list
    REMOVE = 7,        //!< file_id
    MOVE = 8,          //!< file_id, name, replaced_id: the file that had the name (0: none), which is removed
    DATA_CHECKSUM = 9, //!< ranges, see DataChecksum
    CLONE = 10 //!< file_id, kind, created_us, name, source_id: a new file with the contents of that one
};

//! The kind of a CLONE.
enum class CloneKind : uint8_t { WRITABLE = 0, SNAPSHOT = 1 };

//! One item, decoded. Which fields count is said at ItemType.
struct Item {
    Item() = default;
    Item(ItemType type, uint64_t file_id) : type(type), file_id(file_id) {}

    ItemType type = ItemType::SIZE;
    uint64_t file_id = 0;
    uint8_t kind = 0;
    int64_t time_us = 0;
    uint64_t size = 0;
    uint64_t replaced_id = 0;
    uint64_t source_id = 0;
    std::string name;
    std::string tail;
    std::vector<Extent> extents;
    std::vector<Hole> holes;
    std::vector<DataChecksum> checksums;
};

//! In the first record of an epoch of format 2: where the log ends that it continues. Zeros in format 1.
struct LogEnding {
    uint64_t epoch = 0;
    uint64_t bytes = 0; //!< of the records of that epoch
    bool operator==(const LogEnding &other) const { return epoch == other.epoch && bytes == other.bytes; }
};
static_assert(sizeof(LogEnding) == 16, "layout is part of the format");

//! 64 bytes at the start of each record.
struct RecordHeader {
    char magic[4]; //!< "RDLG"
    uint32_t crc;  //!< CRC32C of the volume's UUID, this header (with crc zero) and the payload
    uint64_t epoch;
    uint64_t sequence; //!< 1, 2, 3, … in each epoch
    uint32_t payload_bytes;
    uint32_t item_count;
    int64_t time_us;
    LogEnding before;
    uint8_t reserved[8];
};
static_assert(sizeof(RecordHeader) == 64, "layout is part of the format");

//! A record is at most this long, header and padding included; what does not fit goes into a new snapshot.
constexpr uint64_t RECORD_BYTES_MAX = 1 * MIB;

//! Before the body of each item: type, kind, length, file id.
constexpr uint64_t ITEM_HEADER_BYTES = 16;

void AppendItem(std::string &out, const Item &item);
//! Length of the item's encoding in bytes.
uint64_t ItemBytes(const Item &item);

//! Decodes a run of items. False, with `problem`, when a length or a type does not fit; never reads outside.
bool ParseItems(const char *data, size_t length, std::vector<Item> &items, std::string &problem);

//! A record around encoded items, padded with zeros to a multiple of lba_size.
std::string SealRecord(const Uuid &uuid, uint64_t epoch, uint64_t sequence, int64_t now_us,
                       const std::string &payload, uint32_t item_count, uint32_t lba_size,
                       const LogEnding &before = LogEnding());

//! Is there a whole record of this volume and epoch at the start of `data`? Fills `header` when there is.
bool CheckRecord(const Uuid &uuid, uint64_t epoch, const char *data, size_t available, RecordHeader &header);

//! How long, header included, the record of this epoch at the start of `data` says it is; 0 when no header of
//! this epoch is there. The claim is worth nothing until CheckRecord has seen the whole record.
uint64_t ClaimedRecordBytes(uint64_t epoch, const char *data, size_t available);

//! Bytes that a record takes in the log.
uint64_t RecordFootprint(uint64_t payload_bytes, uint32_t lba_size);

} // namespace rawduck
