//! libFuzzer target: the decoders of what lies on the target, without a mount around them. The input is the
//! payload of a record; it is also taken as a record and as a superblock whose checksums are right.
#include "volume/damage/catalog.hpp"
#include "volume/format/record.hpp"
#include "volume/journal/tree_superblock.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace rawduck;

namespace {

constexpr uint32_t LBA = 512;
constexpr uint64_t EPOCH = 7;

void Require(bool promise) {
    if (!promise) {
        abort();
    }
}

//! What was decoded encodes to what decodes to the same.
void RoundTrip(const std::vector<Item> &items) {
    std::string bytes, again;
    uint64_t expected_bytes = 0;
    for (const Item &item : items) {
        AppendItem(bytes, item);
        expected_bytes += ItemBytes(item);
    }
    Require(bytes.size() == expected_bytes);
    std::vector<Item> decoded;
    std::string problem;
    Require(ParseItems(bytes.data(), bytes.size(), decoded, problem));
    for (const Item &item : decoded) {
        AppendItem(again, item);
    }
    Require(again == bytes);
}

std::string TextOf(const Catalog &catalog) {
    std::string text;
    for (const auto &[id, entry] : catalog.Entries()) {
        text += std::to_string(id) + " " + entry.name + " " + std::to_string(entry.size) + " " + entry.tail;
        for (const Extent &extent : entry.extents) {
            text += " " + std::to_string(extent.start) + "+" + std::to_string(extent.units);
        }
        text += " " + std::to_string(entry.holes.size()) + "\n";
    }
    return text;
}

//! Items that contradict the state are refused and change nothing.
void Replay(const std::vector<Item> &items) {
    Catalog catalog(LBA, AllocationUnit{100}, AllocationUnit{4000});
    for (const Item &item : items) {
        const std::string before = TextOf(catalog);
        std::string problem;
        if (!catalog.Apply(item, problem)) {
            Require(!problem.empty() && TextOf(catalog) == before);
        }
    }
}

void TryRecord(const std::string &payload) {
    Uuid uuid = {};
    RecordHeader header;
    CheckRecord(uuid, EPOCH, payload.data(), payload.size(), header);
    if (payload.size() > RECORD_BYTES_MAX - sizeof(RecordHeader)) {
        return;
    }
    const std::string record = SealRecord(uuid, EPOCH, 1, 0, payload, 0, LBA);
    Require(CheckRecord(uuid, EPOCH, record.data(), record.size(), header));
    Require(header.payload_bytes == payload.size());
    Require(!CheckRecord(uuid, EPOCH + 1, record.data(), record.size(), header));
    Require(!CheckRecord(uuid, EPOCH, record.data(), sizeof(RecordHeader) - 1, header));
}

//! A superblock that is whole by its checksum and passes the examination describes areas inside the target.
void TrySuperblock(const uint8_t *data, size_t size) {
    TreeSuperblock superblock = MakeTreeSuperblock(MIN_VOLUME_BYTES, LBA, Uuid{}, "fuzz", 0);
    memcpy(reinterpret_cast<char *>(&superblock), data, std::min(size, sizeof(superblock)));
    SealSuperblock(superblock);
    bool unsupported = false;
    if (!ExamineSuperblock(superblock, MIN_VOLUME_BYTES, unsupported).empty()) {
        return;
    }
    const uint64_t units = MIN_VOLUME_BYTES / ALLOCATION_UNIT_BYTES;
    Require(superblock.data_start <= superblock.data_end && superblock.data_end <= units);
    for (const uint64_t start : superblock.log_start) {
        Require(start <= units && superblock.log_units <= units - start);
    }
    for (const uint64_t unit : MapUnits(superblock)) {
        Require(unit >= superblock.data_start && unit + TREE_PAGE_UNITS <= superblock.data_end);
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string payload(reinterpret_cast<const char *>(data), size);
    std::vector<Item> items;
    std::string problem;
    if (ParseItems(payload.data(), payload.size(), items, problem)) {
        RoundTrip(items);
    } else {
        Require(!problem.empty());
    }
    Replay(items);
    TryRecord(payload);
    TrySuperblock(data, size);
    return 0;
}
