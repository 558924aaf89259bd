#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "volume/format/record.hpp"
#include "volume/journal/tree_superblock.hpp"

#include <cstring>
#include <gtest/gtest.h>
#include <random>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace rawduck {

TEST(Crc32cTest, KnownValueAndBothImplementationsAgree) {
    EXPECT_EQ(Crc32c(0, "123456789", 9), 0xE3069283u); // check value of CRC-32C (RFC 3720)
    std::mt19937_64 random(1);
    std::string bytes(5000, '\0');
    for (char &byte : bytes) {
        byte = static_cast<char>(random());
    }
    for (size_t length : {0ul, 1ul, 7ul, 8ul, 9ul, 63ul, 4096ul, 5000ul}) {
        EXPECT_EQ(Crc32c(7, bytes.data(), length), Crc32cPortable(7, bytes.data(), length));
    }
}

TEST(Crc32cTest, UsesTheInstructionThatTheProcessorHas) {
#if defined(__x86_64__)
    EXPECT_EQ(Crc32cUsesInstruction(), __builtin_cpu_supports("sse4.2") != 0);
#elif defined(__aarch64__)
    EXPECT_EQ(Crc32cUsesInstruction(), (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0);
#endif
}

TEST(SuperblockTest, EveryDamagedByteIsFound) {
    TreeSuperblock good = MakeTreeSuperblock(GIB, 4096, MakeUuid(), "label", 1);
    bool unsupported = false;
    EXPECT_EQ(ExamineSuperblock(good, GIB, unsupported), "");
    for (size_t i = 0; i < sizeof(good); i += 13) {
        TreeSuperblock bad = good;
        reinterpret_cast<char *>(&bad)[i] ^= 0x40;
        EXPECT_NE(ExamineSuperblock(bad, GIB, unsupported), "") << "byte " << i;
    }
}

TEST(SuperblockTest, NewerVersionAndUnknownFeaturesAreRefusedAsUnsupported) {
    bool unsupported = false;
    TreeSuperblock newer = MakeTreeSuperblock(GIB, 512, MakeUuid(), "", 1);
    newer.version = TREE_FORMAT_VERSION + 1;
    SealSuperblock(newer);
    EXPECT_NE(ExamineSuperblock(newer, GIB, unsupported).find("version 3"), std::string::npos);
    EXPECT_TRUE(unsupported);
    TreeSuperblock incompatible = MakeTreeSuperblock(GIB, 512, MakeUuid(), "", 1);
    incompatible.incompat = 8;
    SealSuperblock(incompatible);
    EXPECT_NE(ExamineSuperblock(incompatible, GIB, unsupported), "");
    EXPECT_TRUE(unsupported);
}

TEST(SuperblockTest, ATargetThatWasCutOffIsFound) {
    TreeSuperblock sb = MakeTreeSuperblock(GIB, 4096, MakeUuid(), "", 1);
    bool unsupported = false;
    EXPECT_NE(ExamineSuperblock(sb, GIB - ALLOCATION_UNIT_BYTES, unsupported).find("cut off"),
              std::string::npos);
    EXPECT_THROW(MakeTreeSuperblock(MIB, 4096, MakeUuid(), "", 1), Error);
}

std::vector<Item> SampleItems() {
    std::vector<Item> items(9);
    for (int i = 0; i < 9; i++) {
        items[i].type = static_cast<ItemType>(i + 1);
        items[i].file_id = 100 + i;
    }
    items[0].kind = 2;
    items[0].name = "a.wal";
    items[0].time_us = 5;
    items[1].extents = {{0, 300, 4}, {4, 500, 9}};
    items[2].extents = {{1, 77, 1}};
    items[3].size = 1234;
    items[3].tail = std::string(210, 'x');
    items[4].size = 0;
    items[5].holes = {{512, 1024}};
    items[7].name = "b.wal";
    items[7].replaced_id = 55;
    items[8].checksums = {{4096, 512, 0xABCD}};
    return items;
}

std::string Encode(const std::vector<Item> &items) {
    std::string out;
    for (const Item &item : items) {
        const size_t before = out.size();
        AppendItem(out, item);
        EXPECT_EQ(out.size() - before, ItemBytes(item));
    }
    return out;
}

TEST(RecordTest, ItemsSurviveEncoding) {
    const std::vector<Item> items = SampleItems();
    const std::string bytes = Encode(items);
    std::vector<Item> parsed;
    std::string problem;
    ASSERT_TRUE(ParseItems(bytes.data(), bytes.size(), parsed, problem)) << problem;
    ASSERT_EQ(parsed.size(), items.size());
    EXPECT_EQ(Encode(parsed), bytes);
    EXPECT_EQ(parsed[3].tail, items[3].tail);
    EXPECT_EQ(parsed[7].name, "b.wal");
    EXPECT_EQ(parsed[7].replaced_id, 55u);
}

TEST(RecordTest, CutOrChangedItemsNeverCrash) {
    const std::string bytes = Encode(SampleItems());
    std::mt19937_64 random(2);
    int refused = 0;
    for (int i = 0; i < 20000; i++) {
        std::string changed = bytes.substr(0, random() % (bytes.size() + 1));
        for (int flips = 0; flips < 3 && !changed.empty(); flips++) {
            changed[random() % changed.size()] ^= static_cast<char>(1 << (random() % 8));
        }
        std::vector<Item> parsed;
        std::string problem;
        refused += ParseItems(changed.data(), changed.size(), parsed, problem) ? 0 : 1;
    }
    EXPECT_GT(refused, 10000);
}

TEST(RecordTest, RecordsAreBoundToVolumeEpochAndContent) {
    const std::string payload = Encode(SampleItems());
    const Uuid uuid = MakeUuid();
    std::string record = SealRecord(uuid, 3, 1, 9, payload, 9, 512);
    EXPECT_EQ(record.size() % 512, 0u);
    RecordHeader header;
    EXPECT_TRUE(CheckRecord(uuid, 3, record.data(), record.size(), header));
    EXPECT_EQ(header.item_count, 9u);
    EXPECT_FALSE(CheckRecord(uuid, 4, record.data(), record.size(), header)) << "another epoch";
    EXPECT_FALSE(CheckRecord(MakeUuid(), 3, record.data(), record.size(), header)) << "another volume";
    EXPECT_FALSE(CheckRecord(uuid, 3, record.data(), payload.size(), header)) << "cut off";
    record[sizeof(RecordHeader) + payload.size() / 2] ^= 1;
    EXPECT_FALSE(CheckRecord(uuid, 3, record.data(), record.size(), header)) << "changed";
}

} // namespace rawduck
