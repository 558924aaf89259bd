//! What a format leaves that is interrupted, and what it leaves of the volume that was there, whose format may be
//! another.

#include "support/journal_store.hpp"
#include "volume/journal/read_journal.hpp"
#include "volume/setup/empty_volume.hpp"

namespace rawduck {

namespace {

constexpr uint64_t SHORT = 16 * MIB, LONG = 32 * MIB;

//! A device with a volume on it of version 1, or of version 2, with one file.
class EmptyVolumeTest : public ::testing::TestWithParam<int> {
  protected:
    EmptyVolumeTest() {
        SimulatedOptions options;
        options.capacity_bytes = LONG;
        options.lba_size = options.atomic_write_bytes = JOURNAL_LBA;
        medium = std::make_shared<SimulatedMedium>(options);
        Format(LONG, static_cast<uint32_t>(GetParam()));
        if (GetParam() == 1) {
            const auto io = OpenMedium(medium);
            io->Write(MIB, content.data(), content.size());
            io->Flush();
            return;
        }
        JournalStore store(medium);
        JournalRecord record;
        record.items.emplace_back(ItemType::CREATE, 1);
        record.items.back().kind = static_cast<uint8_t>(FileKind::OTHER);
        record.items.back().name = "f";
        store.journal.Append(record);
    }

    void Format(uint64_t capacity, uint32_t version = TREE_FORMAT_VERSION) {
        const auto io = OpenMedium(medium);
        TreeSuperblock superblock = MakeTreeSuperblock(capacity, JOURNAL_LBA, MakeUuid(), "", 1);
        superblock.version = version;
        SealSuperblock(superblock);
        const EmptyVolume fresh(superblock);
        WipeSuperblocks(*io, fresh);
        WriteSuperblocks(*io, fresh, [] {});
    }

    //! "old", "fresh", or why it is neither.
    static std::string WhatIs(const Medium &on, uint64_t fresh_capacity) {
        try {
            const LoadedMetadata loaded = LoadMetadata(*OpenMedium(on), MIB, CheckPages::ALL);
            EXPECT_EQ(loaded.image.damage, "");
            EXPECT_TRUE(loaded.problems.empty());
            const bool fresh =
                loaded.image.superblock.capacity_units * ALLOCATION_UNIT_BYTES == fresh_capacity;
            EXPECT_EQ(loaded.trees->catalog.IdOf("f").has_value(), !fresh);
            return fresh ? "fresh" : "old";
        } catch (const Error &error) {
            if (error.Code() != ErrorCode::UNSUPPORTED) {
                return error.what();
            }
        }
        std::string found(content.size(), '?');
        OpenMedium(on)->Read(MIB, &found[0], found.size());
        EXPECT_TRUE(found == content) << "a part of what the old volume holds is gone";
        return "old";
    }

    Medium medium;
    static const std::string content;
};

const std::string EmptyVolumeTest::content(20 * MIB, 'o');

TEST_P(EmptyVolumeTest, IsTheOldVolumeOrTheNewOne) {
    const uint64_t before = medium->Events();
    Format(SHORT);
    std::map<std::string, int> counts;
    for (uint64_t event = before; event <= medium->Events(); event++) {
        for (uint64_t seed = 0; seed < 12; seed++) {
            PowerCutReport report;
            const std::string found = WhatIs(medium->PowerCut(event, seed, report), SHORT);
            counts[found]++;
            // A torn superblock 0 is neither.
            EXPECT_TRUE(found == "old" || found == "fresh" || report.writes_torn + report.units_garbage > 0)
                << found;
        }
    }
    EXPECT_GT(counts["old"], 0);
    EXPECT_GT(counts["fresh"], 0);
}

TEST_P(EmptyVolumeTest, NothingOfTheOldVolumeIsEverChosen) {
    for (const uint64_t capacity : {SHORT, LONG}) { // shorter, and as long as the device again
        Format(capacity);
        EXPECT_EQ(WhatIs(medium, capacity), "fresh");
        TreeSuperblock first;
        const auto io = OpenMedium(medium);
        io->Read(0, &first, sizeof first);
        for (const uint64_t end : {SHORT, LONG}) {
            TreeSuperblock found;
            io->Read(end - ALLOCATION_UNIT_BYTES, &found, sizeof found);
            const bool is_superblock = memcmp(found.magic, SUPERBLOCK_MAGIC, sizeof(SUPERBLOCK_MAGIC)) == 0;
            EXPECT_EQ(is_superblock, end == capacity) << "at the end of " << end;
            EXPECT_TRUE(!is_superblock || found.uuid == first.uuid);
        }
    }
}

TEST_P(EmptyVolumeTest, OutlivesDamageToEitherSuperblock) {
    for (const int copy : {0, 1}) {
        Format(LONG);
        DamageSuperblock(medium, copy);
        EXPECT_EQ(WhatIs(medium, LONG), "fresh");
    }
}

TEST_P(EmptyVolumeTest, LogAreasAreWrittenInAdvance) {
    const TreeSuperblock superblock = MakeTreeSuperblock(LONG, JOURNAL_LBA, MakeUuid(), "", 1);
    const auto io = OpenMedium(medium);
    WriteAreas(*io, EmptyVolume(superblock));
    for (const uint32_t area : {0u, 1u}) {
        std::string bytes(LogBytes(superblock), '?');
        io->Read(LogStart(superblock, area), &bytes[0], bytes.size());
        EXPECT_EQ(bytes.find_first_not_of('\0'), std::string::npos);
    }
}

// Behind the end of the log, and where it would go on, as much is read as a record may be long: at once.
TEST(EmptyLog, IsReadInFewRequests) {
    SimulatedOptions options;
    options.capacity_bytes = 512 * MIB;
    options.lba_size = options.atomic_write_bytes = JOURNAL_LBA;
    const auto medium = std::make_shared<SimulatedMedium>(options);
    const TreeSuperblock superblock =
        MakeTreeSuperblock(options.capacity_bytes, JOURNAL_LBA, MakeUuid(), "", 1);
    ASSERT_GT(LogBytes(superblock), 2 * RECORD_BYTES_MAX);
    WriteSuperblocks(*OpenMedium(medium), EmptyVolume(superblock), [] {});
    const auto stats = std::make_shared<IoStats>();
    BlockIo io(OpenSimulatedDevice(medium, JOURNAL_TARGET, DeviceOptions()), BlockIoOptions(),
               JOURNAL_TARGET.name, stats);
    EXPECT_TRUE(ReadJournal(io).damage.empty());
    const auto reads = stats->Snapshot(IoOperation::READ);
    EXPECT_LE(reads.requests, 10u);
    EXPECT_LT(reads.bytes, 3 * RECORD_BYTES_MAX);
}

INSTANTIATE_TEST_SUITE_P(Versions, EmptyVolumeTest, ::testing::Values(1, 2));

} // namespace

} // namespace rawduck
