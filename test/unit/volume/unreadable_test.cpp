//! LBAs that the device cannot read, in everything that a mount, a check and a repair read: each takes with
//! it only what it held, and nothing is decided that a device that reads it again would decide otherwise.

#include "common/crc32c.hpp"
#include "support/damaged_volume.hpp"
#include "support/journal_store.hpp"
#include "volume/format/salvage_read.hpp"
#include "volume/log/metadata_log.hpp"

namespace rawduck {

namespace {

using Strings = std::vector<std::string>;

class UnreadableTest : public DamagedVolumeTest {
  protected:
    //! A log of several records, the last of which vouches for
    //! `length` bytes of x.wal that lie at the returned place. Then the writer leaves, or is killed.
    uint64_t CommitData(uint64_t length, bool leaves = false) {
        Commit("first", 3);
        auto volume = Mount();
        volume->Open("f", WriteMode())->Append("y", 1); // begins the epoch
        auto file = volume->Open("x.wal", WriteMode(FileKind::WAL));
        file->Append(data.substr(0, length).data(), length);
        file->Sync();
        const uint64_t offset = file->Info().extents.front().device_offset;
        const std::string killed = ReadBytes(0, CAPACITY);
        file.reset();
        volume.reset();
        if (!leaves) {
            WriteBytes(0, killed);
        }
        return offset;
    }

    static std::string LbaName(uint64_t offset) { return "LBA " + std::to_string(offset / LBA) + " to"; }

    //! Mounted for reading, without the last record, and sound again when the LBA is.
    void ExpectUndecided(uint64_t offset, const std::string &what, const std::string &bytes) {
        std::string details;
        EXPECT_EQ(Complaints(&details), Strings{what});
        EXPECT_NE(details.find(LbaName(offset)), std::string::npos) << details;
        ExpectUntouched();
        WriteBytes(offset, bytes);
        EXPECT_TRUE(Complaints().empty());
        EXPECT_TRUE(TakesWrites());
    }

    std::mt19937_64 random{1};
    const std::string data = RandomBytes(random, 64 * KIB);
};

TEST_F(UnreadableTest, DataOfTheLastRecord) {
    for (const uint64_t lba : {0, 3, 7}) {
        const uint64_t offset = CommitData(8 * LBA + 5) + lba * LBA;
        const std::string whole = Content("x.wal"), bytes = ReadBytes(offset, LBA);
        MakeUnreadable(offset);
        std::string details;
        Complaints(&details);
        EXPECT_NE(details.find("x.wal"), std::string::npos) << details;
        EXPECT_EQ(Content("f").substr(0, 5), "first") << "everything else can be read";
        EXPECT_FALSE(Mount()->FileExists("x.wal")) << "as it was before";
        ExpectUndecided(offset, "error log", bytes);
        EXPECT_EQ(Content("x.wal"), whole);
        Mount()->Remove("x.wal");
    }
}

//! It was whole then, so what is damaged since is that data, and not whether it was committed.
TEST_F(UnreadableTest, DataOfTheLastRecordOfAWriterThatLeft) {
    MakeUnreadable(CommitData(8 * LBA, true));
    EXPECT_TRUE(Complaints().empty());
    EXPECT_TRUE(TakesWrites());
    EXPECT_EQ(FailureOf([&] { Content("x.wal"); }), ErrorCode::IO);
}

TEST_F(UnreadableTest, DataOfAnEarlierRecord) {
    const uint64_t offset = CommitData(8 * LBA);
    Commit("again", 2);
    MakeUnreadable(offset);
    EXPECT_TRUE(Complaints().empty());
    EXPECT_TRUE(TakesWrites());
    std::string text;
    EXPECT_EQ(FailureOf([&] { Content("x.wal"); }, &text), ErrorCode::IO);
    EXPECT_NE(text.find(LbaName(offset)), std::string::npos) << text;
}

// When other data that the record vouches for is not there, it was never finished.
TEST_F(UnreadableTest, DataOfARecordThatIsTorn) {
    const uint64_t first = 700 * ALLOCATION_UNIT_BYTES, second = 800 * ALLOCATION_UNIT_BYTES;
    for (const bool torn : {false, true}) {
        {
            const std::unique_ptr<BlockIo> io = OpenIo();
            const LoadedMetadata loaded = LoadMetadata(*io, MIB);
            SpaceZones zones(*loaded.space);
            MetadataLog log(*io, loaded.image, *loaded.trees, zones, [](const std::vector<Extent> &) {});
            log.Begin();
            Item checksums(ItemType::DATA_CHECKSUM, 0);
            std::vector<char> page(data.begin(), data.begin() + ALLOCATION_UNIT_BYTES);
            for (const uint64_t offset : {first, second}) {
                checksums.checksums.push_back(
                    DataChecksum{offset, ALLOCATION_UNIT_BYTES, Crc32c(0, page.data(), page.size())});
                io->Write(offset, page.data(), page.size());
            }
            log.Commit(log.Queue({Item(ItemType::DATA_CHECKSUM, 0)}));
            log.Commit(log.Queue({checksums}, {}, MetadataLog::Cached::CHECKSUMMED));
        }
        MakeUnreadable(first);
        if (torn) {
            WriteBytes(second, std::string(LBA, 't'));
        }
        const JournalImage image = Load();
        EXPECT_EQ(image.torn_tail, torn);
        EXPECT_EQ(image.damage.empty(), torn);
        EXPECT_EQ(TakesWrites(), torn);
        WriteBytes(first, data.substr(0, LBA));
    }
}

TEST_F(UnreadableTest, TheLogBehindItsEnd) {
    Commit("first", 5);
    const uint64_t end = LogEnd(Load());
    for (const uint64_t lbas : {1, 2, 9, 200}) {
        MakeUnreadable(end + lbas * LBA);
    }
    EXPECT_TRUE(Complaints().empty());
    EXPECT_EQ(Content(), "firstfirstfirstfirstfirst");
    Commit("again", 20);
    EXPECT_EQ(Content().size(), 5u * 25);
}

// There may have been a record more: nobody can tell.
TEST_F(UnreadableTest, TheEndOfTheLog) {
    Commit("first", 5);
    const uint64_t end = LogEnd(Load());
    const std::string last = ReadBytes(end - LBA, LBA), behind = ReadBytes(end, LBA);
    MakeUnreadable(end);
    EXPECT_EQ(Content(), "firstfirstfirstfirstfirst");
    ExpectUndecided(end, "error log", behind);
    Commit("again", 5);
    const uint64_t record = LogEnd(Load()) - LBA;
    const std::string bytes = ReadBytes(record, LBA);
    MakeUnreadable(record);
    EXPECT_EQ(Content().substr(25), "againagainagainagain") << "the state before the last record";
    ExpectUndecided(record, "error log", bytes);
    EXPECT_EQ(Content().substr(25), "againagainagainagainagain");
}

TEST_F(UnreadableTest, TheEndOfTheLastRecord) {
    Commit("first", 2);
    Mount()->Open(std::string(200, 'n'), WriteMode());
    auto volume = Mount();
    volume->Open("f", WriteMode())->Append("y", 1);
    const uint64_t start = LogEnd(Load());
    auto file = volume->Open("f", WriteMode());
    file->Append(data.data(), LBA - 20); // a tail that makes the record longer than one LBA
    file->Sync();
    file.reset();
    volume.reset();
    ASSERT_EQ(LogEnd(Load()), start + 2 * LBA);
    const std::string whole = Content(), bytes = ReadBytes(start + LBA, LBA);
    MakeUnreadable(start + LBA);
    EXPECT_EQ(Content(), "firstfirsty");
    ExpectUndecided(start + LBA, "error log", bytes);
    EXPECT_EQ(Content(), whole);
}

TEST_F(UnreadableTest, ARecordInTheMiddle) {
    Commit("first", 6);
    const uint64_t record = LogBegin(Load()) + 3 * LBA;
    const std::string bytes = ReadBytes(record, LBA);
    MakeUnreadable(record);
    EXPECT_EQ(Content(), "firstfirstfirst");
    ExpectUndecided(record, "error log", bytes);
    EXPECT_EQ(Content(), "firstfirstfirstfirstfirstfirst");
}

TEST_F(UnreadableTest, TheFirstPageOfADatabase) {
    const std::string page = std::string(8, 'c') + "DUCK" + std::string(ALLOCATION_UNIT_BYTES - 12, 'h');
    uint64_t offset = 0;
    {
        auto volume = Mount();
        for (const char *name : {"a.duckdb", "b.duckdb"}) {
            auto file = volume->Open(name, WriteMode(FileKind::DATABASE));
            file->Append(page.data(), page.size());
            file->Sync();
            offset = file->Info().extents.front().device_offset;
        }
        volume->Open("f", WriteMode())->Append("y", 1);
    }
    Commit("first", 1); // so that no record vouches for the page
    EXPECT_TRUE(Complaints().empty());
    MakeUnreadable(offset + LBA);
    std::string details;
    EXPECT_EQ(Complaints(&details), Strings{"error file b.duckdb"});
    EXPECT_NE(details.find(LbaName(offset + LBA)), std::string::npos) << details;
    EXPECT_TRUE(TakesWrites());
}

// A device that answers nothing is no damaged volume.
TEST_F(UnreadableTest, ADeviceThatIsGone) {
    Commit("first", 2);
    medium->Inject(SimulatedFault::POWER_CUT, medium->Events());
    std::string text;
    EXPECT_EQ(FailureOf([&] { Mount(); }, &text), ErrorCode::IO);
    EXPECT_NE(text.find("No such device"), std::string::npos) << text;
    EXPECT_EQ(FailureOf([&] { CheckVolume(target.name); }), ErrorCode::IO);
}

// Beyond some LBAs it is not the medium that fails.
TEST_F(UnreadableTest, MoreThanSomeLbas) {
    Commit("first", 2);
    const uint64_t end = LogEnd(Load());
    for (uint64_t i = 0; i <= UNREADABLE_LBAS_MAX; i++) {
        EXPECT_EQ(Content(), "firstfirst") << i;
        MakeUnreadable(end + (i + 1) * LBA);
    }
}

} // namespace

// The state before a damaged record has blocks whose space was given away behind it. What lies there now may
// be a whole block of the same database: only the log knows that it is not the one.
TEST_F(UnreadableTest, WhatWasOverwrittenBehindTheDamageIsNotRead) {
    const std::string old(1 * MIB, 'o'), fresh(1 * MIB, 'n');
    {
        auto volume = Mount();
        auto file = volume->Open("f", WriteMode(FileKind::DATABASE));
        for (int i = 0; i < 6; i++) {
            file->Append(old.data(), old.size());
        }
        file.reset();
        volume.reset();
        volume = Mount();
        file = volume->Open("f", WriteMode(FileKind::DATABASE));
        file->Write(fresh.data(), fresh.size(), 2 * MIB);
        file->Sync(); // log record 1: what lay there is free now
        auto other = volume->Open("g", WriteMode());
        other->Append("x", 1);
        other->Sync();
        bool full = false;
        while (!full) {
            try {
                other->Append(fresh.data(), 64 * KIB);
            } catch (const Error &error) {
                full = error.Code() == ErrorCode::NO_SPACE;
                ASSERT_TRUE(full) << error.what();
            }
        }
        other->Sync();
    }
    const uint64_t record = LogBegin(Load());
    std::string bytes = ReadBytes(record, LBA);
    bytes[100] ^= 1;
    WriteBytes(record, bytes);
    EXPECT_NE(Load().damage, "");
    EXPECT_EQ(Complaints(), (Strings{"error log", "error file f"}));

    auto volume = Mount();
    auto file = volume->Open("f", OpenMode());
    std::string found(1 * MIB, '\0');
    EXPECT_EQ(file->Read(&found[0], found.size(), 4 * MIB), found.size());
    EXPECT_EQ(found, old);
    try {
        file->Read(&found[0], found.size(), 2 * MIB);
        ADD_FAILURE() << "it reads what another file has there";
    } catch (const Error &error) {
        EXPECT_EQ(error.Code(), ErrorCode::CORRUPT);
        EXPECT_NE(std::string(error.what()).find("given to other data"), std::string::npos) << error.what();
    }
}

// A checkpoint cuts off the free blocks at the end of a database: what lies before is as it was.
TEST_F(UnreadableTest, WhatLiesBeforeACutBehindTheDamageIsRead) {
    const std::string old(256 * KIB, 'o');
    const uint64_t kept = 2 * old.size() + LBA;
    uint64_t damaged = 0;
    {
        auto volume = Mount();
        auto file = volume->Open("f", WriteMode(FileKind::DATABASE));
        for (int i = 0; i < 4; i++) {
            file->Append(old.data(), old.size());
            volume->Open("g" + std::to_string(i), WriteMode())->Append("x", 1); // in several extents
        }
        file->Sync();
        auto other = volume->Open("h", WriteMode());
        damaged = volume->Info().log_bytes;
        other->Append("x", 1);
        other->Sync();
        file->Truncate(kept);
    }
    const uint64_t record = LogBegin(Load()) + damaged;
    std::string bytes = ReadBytes(record, LBA);
    bytes[100] ^= 1;
    WriteBytes(record, bytes);

    auto volume = Mount();
    auto file = volume->Open("f", OpenMode());
    std::string found(AlignDown(kept, ALLOCATION_UNIT_BYTES), '\0');
    EXPECT_EQ(file->Read(&found[0], found.size(), 0), found.size());
    EXPECT_EQ(found, std::string(found.size(), 'o'));
    for (const uint64_t cut : {kept, 3 * old.size(), 4 * old.size() - LBA}) {
        EXPECT_EQ(FailureOf([&] { file->Read(&found[0], LBA, cut); }), ErrorCode::CORRUPT) << cut;
    }
}

// What is appended to a log that was emptied lies where its old content was.
TEST_F(UnreadableTest, ALogThatWasEmptiedBehindTheDamageIsNotRead) {
    const std::string old(64 * KIB, 'o'), fresh(16 * KIB, 'n');
    {
        auto volume = Mount();
        auto log = volume->Open("x.wal", WriteMode(FileKind::WAL));
        log->Append(old.data(), old.size());
        log.reset();
        volume.reset();
        volume = Mount();
        log = volume->Open("x.wal", WriteMode(FileKind::WAL));
        auto other = volume->Open("g", WriteMode());
        other->Append("x", 1);
        other->Sync(); // log record 1
        log->Truncate(0);
        log->Append(fresh.data(), fresh.size());
        log->Sync();
    }
    const uint64_t record = LogBegin(Load());
    std::string bytes = ReadBytes(record, LBA);
    bytes[100] ^= 1;
    WriteBytes(record, bytes);

    auto volume = Mount();
    std::string found(LBA, '\0');
    EXPECT_EQ(FailureOf([&] { volume->Open("x.wal", OpenMode())->Read(&found[0], LBA, 0); }),
              ErrorCode::CORRUPT);
}

} // namespace rawduck
