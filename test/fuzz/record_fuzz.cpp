//! libFuzzer target: the decoders of what lies on the target, without a mount around them. The input is the
//! payload of a record; it is also taken as a record and as a superblock whose checksums are right.
#include "volume/format/record.hpp"
#include "volume/format/superblock.hpp"
#include "volume/log/catalog.hpp"

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

//! Items that contradict the state are refused and change nothing; the others build a state whose snapshot
//! builds the same state.
void Replay(const std::vector<Item> &items) {
    Catalog catalog(LBA, AllocationUnit{100}, AllocationUnit{4000});
    for (const Item &item : items) {
        const std::string before = catalog.Snapshot();
        std::string problem;
        if (!catalog.Apply(item, problem)) {
            Require(!problem.empty() && catalog.Snapshot() == before);
        }
    }
    if (!catalog.FindProblems().empty()) {
        return; // a mount refuses to write to it
    }
    const std::string snapshot = catalog.Snapshot();
    Require(snapshot.size() == catalog.SnapshotBytes());
    std::vector<Item> decoded;
    std::string problem;
    Require(ParseItems(snapshot.data(), snapshot.size(), decoded, problem));
    Catalog copy(LBA, AllocationUnit{100}, AllocationUnit{4000});
    for (const Item &item : decoded) {
        Require(copy.Apply(item, problem));
    }
    Require(copy.Snapshot() == snapshot);
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
    Superblock superblock = MakeSuperblock(MIN_VOLUME_BYTES, LBA, Uuid{}, "fuzz", 0);
    memcpy(reinterpret_cast<char *>(&superblock), data, std::min(size, sizeof(superblock)));
    SealSuperblock(superblock);
    bool unsupported = false;
    if (!ExamineSuperblock(superblock, MIN_VOLUME_BYTES, unsupported).empty()) {
        return;
    }
    const uint64_t units = MIN_VOLUME_BYTES / ALLOCATION_UNIT_BYTES;
    Require(superblock.data_start <= superblock.data_end && superblock.data_end <= units);
    for (const uint64_t start : superblock.metadata_start) {
        Require(start <= units && superblock.metadata_units <= units - start);
    }
    Require(superblock.snapshot_bytes <= superblock.metadata_units * ALLOCATION_UNIT_BYTES);
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
