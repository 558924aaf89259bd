//! Whether a reader that becomes a writer notices that somebody else has written to the volume.

#include "support/journal_store.hpp"
#include "volume/journal/read_journal.hpp"

namespace rawduck {

namespace {

class JournalUnchangedTest : public ::testing::Test {
  protected:
    //! What a mount that only reads knows.
    void Look() { seen_ = ReadJournal(*io_); }
    bool Unchanged() { return IsUnchanged(*io_, seen_.superblock, seen_.log.back()); }

    void Append(JournalStore &store) {
        JournalRecord record;
        record.items.emplace_back(ItemType::CREATE, ++last_id_);
        record.items.back().kind = static_cast<uint8_t>(FileKind::OTHER);
        record.items.back().name = "file " + std::to_string(last_id_);
        store.journal.Append(record);
    }

    const Medium medium_ = JournalMedium();
    const std::unique_ptr<BlockIo> io_ = OpenMedium(medium_);
    JournalImage seen_;
    uint64_t last_id_ = 0;
};

TEST_F(JournalUnchangedTest, EveryMountThatWritesIsNoticed) {
    for (int life = 0; life < 5; life++) {
        Look();
        JournalStore store(medium_);
        EXPECT_TRUE(Unchanged());
        store.journal.Begin();
        EXPECT_FALSE(Unchanged()) << "it has counted itself";
        Append(store);
        EXPECT_FALSE(Unchanged());
    }
}

TEST_F(JournalUnchangedTest, EveryRecordOfAMountThatGoesOnIsNoticed) {
    JournalStore store(medium_);
    for (int record = 0; record < 300;
         record++) { // also those behind which a checkpoint begins, or is written
        Append(store);
        Look();
        EXPECT_TRUE(Unchanged());
        Append(store);
        EXPECT_FALSE(Unchanged()) << "record " << record;
        EXPECT_TRUE(store.journal.IsUnchanged()) << "its own record " << record;
        if (record % 50 == 49) {
            Look();
            const bool written = store.journal.WriteCheckpoint();
            EXPECT_EQ(Unchanged(), !written);
            EXPECT_TRUE(store.journal.IsUnchanged());
        }
    }
    EXPECT_GT(store.journal.Checkpoints(), 2u);
}

// What the writer itself knows is outdated, too, once somebody else has written.
TEST_F(JournalUnchangedTest, TheWriterNoticesAnother) {
    JournalStore store(medium_);
    EXPECT_TRUE(store.journal.IsUnchanged());
    store.journal.Begin(); // an epoch that no record is of yet
    EXPECT_TRUE(store.journal.IsUnchanged());
    Append(store);
    EXPECT_TRUE(store.journal.IsUnchanged());
    JournalStore other(medium_);
    EXPECT_TRUE(store.journal.IsUnchanged());
    other.journal.Begin();
    EXPECT_FALSE(store.journal.IsUnchanged());
}

// A record whose data never arrived does not count, neither for the mount nor here.
TEST_F(JournalUnchangedTest, ATornRecordIsNoChange) {
    {
        JournalStore store(medium_);
        Append(store);
        JournalRecord record;
        record.items.emplace_back(ItemType::DATA_CHECKSUM, 0);
        Look();
        record.items.back().checksums.push_back(
            {seen_.superblock.data_start * ALLOCATION_UNIT_BYTES, ALLOCATION_UNIT_BYTES, 1});
        store.journal.Append(record);
    }
    EXPECT_TRUE(Unchanged()) << "as it was before that record";
    Look();
    EXPECT_TRUE(seen_.torn_tail);
    EXPECT_TRUE(Unchanged());
}

} // namespace

} // namespace rawduck
