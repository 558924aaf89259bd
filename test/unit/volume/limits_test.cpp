//! At a limit one operation fails and says why; commits to what is there, removals and mounts go on.

#include "common/error.hpp"
#include "support/hooked_device.hpp"
#include "volume/format/superblock.hpp"

#include <algorithm>
#include <map>

namespace rawduck {

namespace {

constexpr uint64_t CAPACITY = 64 * MIB;
constexpr uint64_t BLOCK = 256 * KIB;

//! Repeats an action until it fails for want of space; returns how often it worked.
int UntilNoSpace(const std::function<void(int)> &action) {
    for (int i = 0; i < 100000; i++) {
        try {
            action(i);
        } catch (const Error &error) {
            EXPECT_EQ(error.Code(), ErrorCode::NO_SPACE) << error.what();
            EXPECT_NE(std::string(error.what()).find("remove files"), std::string::npos) << error.what();
            return i;
        }
    }
    ADD_FAILURE() << "the limit was never reached";
    return 0;
}

//! A database and its log, as DuckDB has them open.
class LimitsTest : public ::testing::TestWithParam<uint32_t> {
  protected:
    explicit LimitsTest(uint64_t capacity = CAPACITY) : simulated(GetParam(), capacity) {}
    void Open() {
        volume = simulated.Mount();
        database = volume->Open("keep.duckdb", WriteMode(FileKind::DATABASE));
        log = volume->Open("keep.duckdb.wal", WriteMode(FileKind::WAL));
        Overwrite(0, 3 * ALLOCATION_UNIT_BYTES + 8 * BLOCK);
        Commit(100);
    }
    void Overwrite(uint64_t offset, uint64_t length) {
        const std::string bytes = RandomBytes(random, length);
        database->Write(bytes.data(), bytes.size(), offset);
        content.resize(std::max<size_t>(content.size(), offset + length));
        content.replace(offset, length, bytes);
        database->Sync();
    }
    //! Free space lies in single units then, but for what is kept.
    void FillInFragments() {
        const std::string unit(ALLOCATION_UNIT_BYTES, 'u');
        {
            auto pieces = volume->Open("pieces", WriteMode());
            const std::string bytes(24 * MIB, 'p');
            pieces->Append(bytes.data(), bytes.size());
            pieces->Sync();
            for (uint64_t offset = 0; offset < bytes.size(); offset += 2 * unit.size()) {
                pieces->Write(unit.data(), unit.size(), offset); // to another place
            }
        }
        auto rest = volume->Open("rest", WriteMode());
        for (const uint64_t length : {MIB, 64 * KIB, 4 * KIB}) {
            const std::string bytes(length, 'r');
            UntilNoSpace([&](int) { rest->Append(bytes.data(), bytes.size()); });
        }
        rest->Sync();
    }
    void ReplaceBlocks() {
        Overwrite(3 * ALLOCATION_UNIT_BYTES, BLOCK);
        Overwrite(ALLOCATION_UNIT_BYTES, ALLOCATION_UNIT_BYTES);
        EXPECT_EQ(volume->Info().poisoned, "");
        EXPECT_TRUE(ReadAll(*simulated.MountAfterCut(), "keep.duckdb") == content);
    }
    void Commit(uint64_t length) {
        const std::string bytes = RandomBytes(random, length);
        log->Append(bytes.data(), bytes.size());
        logged += bytes;
        log->Sync();
    }
    //! Everything that DuckDB does in commits and checkpoints.
    void UseTheDatabase() {
        for (int i = 0; i < 40; i++) {
            Commit(1 + random() % 3000);
        }
        for (uint64_t block = 0; block < 8; block += 2) {
            Overwrite(3 * ALLOCATION_UNIT_BYTES + block * BLOCK, BLOCK);
            Overwrite(random() % 3 * ALLOCATION_UNIT_BYTES, ALLOCATION_UNIT_BYTES);
        }
        {
            auto next = volume->Open("keep.duckdb.wal.checkpoint", WriteMode(FileKind::WAL));
            next->Append("next", 4);
            next->Sync();
        }
        volume->Move("keep.duckdb.wal.checkpoint", "keep.duckdb.wal");
        logged = "next";
        log = volume->Open("keep.duckdb.wal", WriteMode(FileKind::WAL));
        Commit(5000);
        log->Truncate(3001);
        logged.resize(3001);
        EXPECT_EQ(volume->Info().poisoned, "");
        const auto found = simulated.MountAfterCut();
        EXPECT_TRUE(ReadAll(*found, "keep.duckdb") == content);
        EXPECT_TRUE(ReadAll(*found, "keep.duckdb.wal") == logged);
    }

    void Remount() {
        database.reset();
        log.reset();
        volume.reset();
        volume = simulated.Mount();
        database = volume->Open("keep.duckdb", WriteMode(FileKind::DATABASE));
        log = volume->Open("keep.duckdb.wal", WriteMode(FileKind::WAL));
    }

    SimulatedVolume simulated;
    std::mt19937_64 random{1};
    std::string content, logged;
    std::shared_ptr<Volume> volume;
    std::unique_ptr<OpenFile> database, log;
};
INSTANTIATE_TEST_SUITE_P(LbaSizes, LimitsTest, ::testing::Values(512, 4096));

class SmallestVolumeTest : public LimitsTest {
  protected:
    SmallestVolumeTest() : LimitsTest(MIN_VOLUME_BYTES) {}
    //! Whatever else is there, and whatever the volume refuses from now on.
    void CommitToLogsThatAreThere(const std::vector<std::string> &others) {
        for (int i = 0; i < 40; i++) {
            Commit(1 + random() % 3000);
        }
        Commit(MIB + 777);                               // needs more space than was reserved for it
        for (size_t i = 0; i < others.size(); i += 16) { // what all of them may grow by is not kept
            auto other = volume->Open(others[i], WriteMode(FileKind::WAL));
            const std::string bytes = RandomBytes(random, 5001);
            other->Append(bytes.data(), bytes.size());
            other->Sync();
        }
        Overwrite(3 * ALLOCATION_UNIT_BYTES, BLOCK);
        Overwrite(ALLOCATION_UNIT_BYTES, ALLOCATION_UNIT_BYTES);
        log->Truncate(1001);
        logged.resize(1001);
        EXPECT_EQ(volume->Info().poisoned, "");
        const auto found = simulated.MountAfterCut();
        EXPECT_TRUE(ReadAll(*found, "keep.duckdb") == content);
        EXPECT_TRUE(ReadAll(*found, "keep.duckdb.wal") == logged);
    }
};
INSTANTIATE_TEST_SUITE_P(LbaSizes, SmallestVolumeTest, ::testing::Values(512, 4096));

} // namespace

// Metadata is taken from free space, and new files leave some of that to what is there.
TEST_P(LimitsTest, FilesThatFillTheVolumeLeaveRoomForCommits) {
    Open();
    const std::string bytes(4000, 's');
    const std::string folder(200, 'n');
    int number = 0;
    const auto make = [&](int) {
        auto file = volume->Open(folder + "/" + std::to_string(number), WriteMode());
        file->Append(bytes.data(), bytes.size());
        number++;
    };
    const int made = UntilNoSpace(make);
    EXPECT_GT(made, GetParam() == 512 ? 3000 : 700);
    UseTheDatabase();
    EXPECT_LT(UntilNoSpace(make), made / 10) << "still full, but for what the database has given back";
    for (const bool remount : {false, true}) {
        for (int i = 0; i < 20; i++) { // most of them for what the database has grown by
            volume->Remove(folder + "/" + std::to_string((remount ? 20 : 0) + i));
        }
        if (remount) {
            Remount();
        }
        make(0);
        UseTheDatabase();
    }
    EXPECT_TRUE(volume->RemoveDirectory(folder, true));
    EXPECT_GT(UntilNoSpace(make), made - made / 10) << "all of the room is there again";
}

// A new log may be refused; what is there already can be written to, truncated and removed.
TEST_P(SmallestVolumeTest, LogsThatFillTheVolumeLeaveRoomForCommits) {
    Open();
    std::vector<std::string> others;
    const auto make = [&](int) {
        const std::string name = "other" + std::to_string(others.size()) + ".duckdb.wal";
        auto other = volume->Open(name, WriteMode(FileKind::WAL));
        other->Append("x", 1);
        other->Sync();
        others.push_back(name);
    };
    const int made = UntilNoSpace(make);
    EXPECT_GT(made, GetParam() == 512 ? 300 : 60);
    CommitToLogsThatAreThere(others);
    EXPECT_LT(UntilNoSpace(make), made / 4) << "still full";
    Remount();
    EXPECT_LT(UntilNoSpace(make), made / 4) << "a mount finds it as full";
    CommitToLogsThatAreThere(others);
    for (size_t i = others.size() / 4; i > 0; i--) { // for what has grown, and the one that is to be made
        volume->Remove(others.back());
        others.pop_back();
    }
    UseTheDatabase();
    CommitToLogsThatAreThere(others);
}

TEST_P(SmallestVolumeTest, LongerNamesLeaveRoomForCommits) {
    Open();
    const auto make = [&](int i) { volume->Open(std::to_string(i), WriteMode())->Append("x", 1); };
    const int made = UntilNoSpace(make);
    UntilNoSpace([&](int i) {
        ASSERT_LT(i, made) << "there is room for every name";
        volume->Move(std::to_string(i), std::string(250 - std::to_string(i).size(), 'n') + std::to_string(i));
    });
    UseTheDatabase();
}

TEST_P(SmallestVolumeTest, LongerTailsLeaveRoomForCommits) {
    Open();
    const std::string whole(ALLOCATION_UNIT_BYTES, 'w');
    std::vector<std::unique_ptr<OpenFile>> files;
    const auto make = [&](int i) {
        files.push_back(volume->Open(std::to_string(i), WriteMode()));
        files.back()->Append(whole.data(), whole.size());
        files.back()->Sync();
    };
    UntilNoSpace(make);
    UntilNoSpace([&](int i) {
        ASSERT_LT(static_cast<size_t>(i), files.size()) << "there is room for every tail";
        files[i]->Truncate(ALLOCATION_UNIT_BYTES - 1);
    });
    UseTheDatabase();
}

// The names of these files alone fill it, each in the log with its first Sync only.
TEST_P(LimitsTest, FilesThatAreNotSyncedYetHaveTheirRoom) {
    Open();
    std::vector<std::unique_ptr<OpenFile>> files;
    const auto make = [&](int i) {
        std::string name = std::to_string(i) + "/";
        name.resize(255, 'n');
        files.push_back(volume->Open(name, WriteMode()));
    };
    const int made = UntilNoSpace(make);
    for (const auto &file : files) {
        file->Append("x", 1); // takes the room of a tail
        file->Sync();
        if (&file == &files[20]) {
            break;
        }
    }
    UseTheDatabase();
    files.clear();
    UseTheDatabase();
    database.reset();
    log.reset();
    volume.reset();
    volume = simulated.Mount();
    EXPECT_GE(volume->Files().size(), static_cast<size_t>(made));
    for (const FileInfo &info : volume->Files()) {
        volume->Remove(info.name);
    }
    EXPECT_EQ(volume->Info().used_bytes, 0u);
}

// Holes are as many as there is space for.
TEST_P(LimitsTest, HolesThatFillTheVolumeFailTheWriteAndNotTheSync) {
    Open();
    auto sparse = volume->Open("sparse", WriteMode());
    const uint64_t lba = GetParam();
    std::string expected;
    const int holes = UntilNoSpace([&](int i) {
        const uint64_t offset = (2 * static_cast<uint64_t>(i) + 1) * lba;
        sparse->Write("x", 1, offset);
        expected.resize(offset + 1, '\0');
        expected.back() = 'x';
        if (i % 4096 == 0) {
            sparse->Sync();
        }
    });
    EXPECT_GT(static_cast<uint64_t>(holes), 35 * MIB / (2 * lba));
    sparse->Sync();
    EXPECT_TRUE(ReadAll(*simulated.MountAfterCut(), "sparse") == expected);
    UseTheDatabase();
    volume->Remove("sparse");
}

TEST_P(LimitsTest, FragmentsThatFillTheVolumeFailTheWriteAndNotTheSync) {
    Open();
    auto file = volume->Open("fragments.duckdb", WriteMode(FileKind::DATABASE));
    const uint64_t units = 40 * MIB / ALLOCATION_UNIT_BYTES;
    std::string expected = RandomBytes(random, units * ALLOCATION_UNIT_BYTES);
    file->Write(expected.data(), expected.size(), 0);
    file->Sync();
    const std::string page(ALLOCATION_UNIT_BYTES, 'p');
    bool full = false;
    for (int round = 0; round < 4 && !full; round++) {
        for (uint64_t i = 4; i < units && !full; i += 2 + round) {
            try {
                file->Write(page.data(), page.size(), i * ALLOCATION_UNIT_BYTES);
                expected.replace(i * ALLOCATION_UNIT_BYTES, ALLOCATION_UNIT_BYTES, page);
            } catch (const Error &error) {
                EXPECT_EQ(error.Code(), ErrorCode::NO_SPACE);
                full = true;
            }
        }
        file->Sync();
        EXPECT_EQ(volume->Info().poisoned, "");
    }
    EXPECT_TRUE(ReadAll(*simulated.MountAfterCut(), "fragments.duckdb") == expected);
    log->Append("x", 1);
    log->Sync();
    volume->Remove("fragments.duckdb");
    logged += "x";
    file.reset();
    UseTheDatabase();
}

// Where free space lies in single units, no zone can be added to the metadata, and each unit of a log takes some of it.
TEST_P(LimitsTest, LogsInFragmentsLeaveRoomForReplacements) {
    Open();
    FillInFragments();
    EXPECT_GT(UntilNoSpace([&](int) { Commit(ALLOCATION_UNIT_BYTES); }), 0);
    Overwrite(AlignUp(content.size(), ALLOCATION_UNIT_BYTES), BLOCK); // a checkpoint without a free block
    ReplaceBlocks();
}

// A load takes only what it is given, and not what replacing blocks needs.
TEST_P(LimitsTest, LoadsInFragmentsLeaveRoomForReplacements) {
    Open();
    FillInFragments();
    EXPECT_GT(UntilNoSpace([&](int) { Overwrite(AlignUp(content.size(), ALLOCATION_UNIT_BYTES), BLOCK); }),
              0);
    UntilNoSpace([&](int) { Commit(ALLOCATION_UNIT_BYTES); });
    ReplaceBlocks();
}

TEST_P(LimitsTest, WhatOpenFilesReservedIsThereForOthers) {
    Open();
    std::vector<std::unique_ptr<OpenFile>> files;
    const std::string small(4096, 's');
    for (int i = 0; i < 63; i++) {
        files.push_back(volume->Open("small" + std::to_string(i), WriteMode()));
        files.back()->Append(small.data(), small.size());
    }
    auto large = volume->Open("large.duckdb", WriteMode(FileKind::DATABASE));
    const std::string block(BLOCK, 'l');
    uint64_t written = 0;
    for (; written < 52 * MIB; written += BLOCK) {
        ASSERT_NO_THROW(large->Write(block.data(), BLOCK, written)) << written;
    }
    for (const auto &file : files) {
        file->Append(small.data(), 100);
        file->Sync();
    }
    large->Sync();
    const auto found = simulated.MountAfterCut();
    EXPECT_EQ(ReadAll(*found, "small62").size(), small.size() + 100);
    EXPECT_EQ(ReadAll(*found, "large.duckdb").size(), written);
}

} // namespace rawduck
