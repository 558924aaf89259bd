//! Power cuts at every kind of moment: what was acknowledged
//! is there, what was not is wholly there or not at all.

#include "support/killed_at_flush.hpp"
#include "support/power_cut_workload.hpp"
#include "support/test_support.hpp"

#include <algorithm>
#include <map>

namespace rawduck {

namespace {

//! Mounts what a cut left and says whether it is healthy and an allowed state.
bool Recovers(const Medium &medium, const std::vector<State> &allowed, State &found) {
    const std::shared_ptr<Volume> volume = Mount(medium);
    found = ReadState(*volume);
    return volume->Info().poisoned.empty() &&
           std::find(allowed.begin(), allowed.end(), found) != allowed.end();
}

//! Commits go out with FUA on every other device.
SimulatedFua FuaOf(uint64_t seed) {
    return seed % 2 == 0 ? SimulatedFua::HONOURED : SimulatedFua::NONE;
}

} // namespace

TEST(PowerCutTest, EveryCrashPointOfSmallWorkloads) {
    for (uint32_t lba_size : {512u, 4096u}) {
        for (uint64_t seed = 1; seed <= 4; seed++) {
            std::mt19937_64 random(seed);
            const Medium medium = Formatted(lba_size, FuaOf(seed));
            const uint64_t formatted = medium->Events();
            Workload workload(medium, State(), random);
            workload.Run(15);
            for (uint64_t cut = formatted; cut <= workload.Events(); cut++) {
                State found;
                ASSERT_TRUE(Recovers(Cut(medium, cut, seed), workload.Allowed(cut), found))
                    << "seed " << seed << ", LBA size " << lba_size << ", cut after event " << cut;
            }
        }
    }
}

TEST(PowerCutTest, CutAfterCutOfOneVolume) {
    for (uint64_t seed = 0; seed < 4; seed++) {
        const uint32_t lba_size = seed < 2 ? 512 : 4096;
        std::mt19937_64 random(seed);
        Medium medium = Cut(Formatted(lba_size, FuaOf(seed)), 6, 0);
        State state;
        for (int life = 0; life < 200; life++) {
            Workload workload(medium, state, random);
            workload.Run(1 + static_cast<int>(random() % 12));
            const uint64_t cut = random() % (workload.Events() + 1);
            medium = Cut(medium, cut, life);
            ASSERT_TRUE(Recovers(Cut(medium, 0, 0), workload.Allowed(cut), state))
                << "seed " << seed << ", life " << life << ", cut after event " << cut;
        }
    }
}

//! Two lives of a volume with a cut in each, at every pair of moments.
TEST(PowerCutTest, EveryPairOfCuts) {
    for (uint64_t seed = 1; seed <= 24; seed += OneSeedIn()) {
        std::mt19937_64 random(seed);
        const Medium first = Cut(Formatted(512, FuaOf(seed)), 6, 0);
        Workload first_life(first, State(), random);
        first_life.Run(2);
        for (uint64_t cut = 0; cut <= first_life.Events(); cut++) {
            State state;
            ASSERT_TRUE(Recovers(Cut(first, cut, seed), first_life.Allowed(cut), state));
            const Medium second = Cut(first, cut, seed);
            Workload second_life(second, state, random);
            second_life.Run(2);
            for (uint64_t again = 0; again <= second_life.Events(); again++) {
                ASSERT_TRUE(Recovers(Cut(second, again, seed), second_life.Allowed(again), state))
                    << "seed " << seed << ", cuts after events " << cut << " and " << again;
            }
        }
    }
}

// The last record of the log vouches for its data with a checksum. Overwriting that data must not make a
// mount take the record for torn, even when it was written by an earlier mount.
TEST(PowerCutTest, OverwritingWhatAnEarlierMountVouchedFor) {
    const Medium medium = Formatted(512, SimulatedFua::HONOURED);
    const std::string before(32 * KIB, 'b'), after(512, 'a');
    const uint64_t offset = 16 * KIB; // behind the pages that are replaced, not overwritten
    auto volume = Mount(medium);
    volume->Open("warm-up", WriteMode())->Append("x", 1);
    auto file = volume->Open("f.csv", WriteMode());
    file->Append(before.data(), before.size());
    file->Sync();
    const Medium later = Cut(medium, medium->Events(), 0);
    file.reset();
    volume.reset();
    volume = Mount(later);
    volume->Open("f.csv", WriteMode())->Write(after.data(), after.size(), offset);
    for (uint64_t cut = 0; cut <= later->Events(); cut++) {
        for (uint64_t seed = 0; seed < 10; seed++) {
            const std::string found = ReadAll(*Mount(Cut(later, cut, seed)), "f.csv");
            ASSERT_EQ(found.size(), before.size()) << "cut after event " << cut << ", seed " << seed;
            EXPECT_EQ(found.substr(offset + 512), before.substr(offset + 512));
        }
    }
}

// These tests would notice if the FUA of a commit got lost on its way to the device.
TEST(PowerCutTest, ADeviceThatIgnoresFuaLosesCommits) {
    std::mt19937_64 random(1);
    const Medium medium = Formatted(512, SimulatedFua::IGNORED);
    const uint64_t formatted = medium->Events();
    Workload workload(medium, State(), random);
    workload.Run(15);
    size_t lost = 0;
    for (uint64_t cut = formatted; cut <= workload.Events(); cut++) {
        State found;
        try {
            lost += Recovers(Cut(medium, cut, 1), workload.Allowed(cut), found) ? 0 : 1;
        } catch (const Error &error) {
            EXPECT_EQ(error.Code(), ErrorCode::CORRUPT) << error.what();
            lost++; // and the volume says so
        }
    }
    EXPECT_GT(lost, 0u);
}

// DuckDB rewrites blocks of metadata that its durable header refers to. Until the Sync behind it is done, a
// block holds what it held before, and afterwards what was written: never a mixture.
TEST(PowerCutTest, OverwrittenBlocksAreWhole) {
    const uint64_t block_bytes = 256 * KIB, start = 12288;
    const Medium medium = Formatted(512, SimulatedFua::HONOURED);
    const std::string head(start, 'h'), before(2 * block_bytes, 'b'), after(block_bytes, 'a');
    auto volume = Mount(medium);
    auto file = volume->Open("x.duckdb", WriteMode(FileKind::DATABASE));
    file->Write(head.data(), head.size(), 0);
    file->Write(before.data(), before.size(), start);
    file->Sync();
    const uint64_t written = medium->Events();
    file->Write(after.data(), after.size(), start + block_bytes);
    file->Write(after.data(), after.size(), start + block_bytes); // once more before the Sync
    file->Write(after.data(), ALLOCATION_UNIT_BYTES, start);
    std::string expected = head + before;
    expected.replace(start + block_bytes, block_bytes, after);
    expected.replace(start, ALLOCATION_UNIT_BYTES, after, 0, ALLOCATION_UNIT_BYTES);
    EXPECT_EQ(ReadAll(*volume, "x.duckdb"), expected);
    file->Sync();
    const uint64_t synced = medium->Events();
    for (uint64_t cut = written; cut <= synced; cut++) {
        for (uint64_t seed = 0; seed < 10; seed++) {
            const std::string found = ReadAll(*Mount(Cut(medium, cut, seed)), "x.duckdb");
            const bool is_old = found == head + before, is_new = found == expected;
            ASSERT_TRUE(is_new || (is_old && cut < synced)) << "cut after event " << cut << ", seed " << seed;
        }
    }
}

// A Sync vouches for new headers with checksums. The device may not be told to forget what these cover.
TEST(PowerCutTest, ForgettingAHeaderDoesNotLoseTheSyncOfOthers) {
    const Medium medium = Formatted(512, SimulatedFua::HONOURED);
    auto volume = Mount(medium);
    auto file = volume->Open("x.duckdb", WriteMode(FileKind::DATABASE));
    std::string content(12288 + 2 * 65536, 'b');
    file->Write(content.data(), content.size(), 0);
    file->Sync();
    const std::string after(65536, 'a');
    file->Write(after.data(), ALLOCATION_UNIT_BYTES, ALLOCATION_UNIT_BYTES);
    file->Write(after.data(), after.size(), 12288);
    EXPECT_TRUE(file->Deallocate(0, 12288 + 65536 + 100)) << "the first block may be forgotten";
    EXPECT_FALSE(file->Deallocate(ALLOCATION_UNIT_BYTES, ALLOCATION_UNIT_BYTES));
    file->Write(after.data(), after.size(), 12288 + 65536);
    file->Sync();
    for (uint64_t seed = 0; seed < 10; seed++) {
        const std::string found = ReadAll(*Mount(Cut(medium, medium->Events(), seed)), "x.duckdb");
        EXPECT_TRUE(found.substr(ALLOCATION_UNIT_BYTES, ALLOCATION_UNIT_BYTES) ==
                    after.substr(0, ALLOCATION_UNIT_BYTES))
            << "seed " << seed;
        EXPECT_TRUE(found.substr(12288 + 65536) == after) << "seed " << seed;
    }
}

// DuckDB moves a log that its recovery has put together over the log, and
// then removes what it was put together from. What a cut between them
// would leave, a later recovery would take for part of the log once more.
TEST(PowerCutTest, AMergedLogIsGoneWhenTheRecoveredOneIsThere) {
    const Medium medium = Formatted(512, SimulatedFua::HONOURED);
    auto volume = Mount(medium);
    auto database = volume->Open("x.duckdb", WriteMode(FileKind::DATABASE)); // as DuckDB has it meanwhile
    const State before{{"x.duckdb", "d"},
                       {"x.duckdb.wal", "old"},
                       {"x.duckdb.wal.checkpoint", "part"},
                       {"x.duckdb.wal.recovery", "merged"}};
    for (const auto &[name, content] : before) {
        auto file = volume->Open(name, WriteMode(FileKind::DATABASE));
        file->Append(content.data(), content.size());
        file->Sync();
    }
    const State after{{"x.duckdb", "d"}, {"x.duckdb.wal", "merged"}};
    const uint64_t synced = medium->Events();
    volume->Move("x.duckdb.wal.recovery", "x.duckdb.wal");
    EXPECT_EQ(ReadAll(*volume, "x.duckdb.wal"), "merged");
    volume->Remove("x.duckdb.wal.checkpoint");
    const uint64_t removed = medium->Events();
    for (uint64_t cut = synced; cut <= removed; cut++) {
        for (uint64_t seed = 0; seed < 10; seed++) {
            const State found = ReadState(*Mount(Cut(medium, cut, seed)));
            ASSERT_TRUE(found == after || (found == before && cut < removed)) << "cut after event " << cut;
        }
    }
    // Whatever is made durable later makes the move durable before.
    for (const bool by_sync : {true, false}) {
        volume->Open("x.duckdb.wal.recovery", WriteMode())->Append("again", 5);
        volume->Open("x.duckdb.wal.recovery", WriteMode())->Sync();
        volume->Move("x.duckdb.wal.recovery", "x.duckdb.wal");
        if (by_sync) {
            database->Append("d", 1);
            database->Sync();
        } else {
            database.reset(); // the last writer
        }
        EXPECT_EQ(ReadAll(*Mount(Cut(medium, medium->Events(), 1)), "x.duckdb.wal"), "again") << by_sync;
    }
}

//! Any bytes of a file, anywhere, in any order, as often as one likes before a Sync.
void ChangeAtRandom(OpenFile &file, std::string &content, std::mt19937_64 &random) {
    switch (random() % 6) {
    case 0: {
        const uint64_t size = random() % 2 == 0 ? random() % (content.size() + 1) : content.size() * 7 / 8;
        file.Truncate(size);
        content.resize(size);
        return;
    }
    case 1:
    case 2: {
        const std::string bytes = RandomBytes(random, random() % 8 == 0 ? 2 * MIB + 77 : random() % 5000);
        file.Append(bytes.data(), bytes.size());
        content += bytes;
        return;
    }
    default: {
        const uint64_t near_the_end = content.size() - std::min<uint64_t>(content.size(), random() % 6000);
        const uint64_t offset = random() % 2 == 0 ? near_the_end : random() % (content.size() + 5000);
        const std::string bytes = RandomBytes(random, 1 + random() % 3000);
        file.Write(bytes.data(), bytes.size(), offset);
        content.resize(std::max<size_t>(content.size(), offset + bytes.size()), '\0');
        content.replace(offset, bytes.size(), bytes);
    }
    }
}

// What a Sync acknowledged is what the next mount reads, whichever way the bytes were changed.
TEST(PowerCutTest, WhateverWasChangedBeforeASyncIsThereAfterwards) {
    for (uint64_t seed = 1; seed <= 12; seed++) {
        const uint32_t lba_size = seed % 2 == 0 ? 512 : 4096;
        std::mt19937_64 random(seed);
        const Medium medium = Formatted(lba_size, FuaOf(seed));
        auto volume = Mount(medium);
        auto file = volume->Open("f.csv", WriteMode());
        std::string content;
        for (int step = 0; step < 60; step++) {
            for (uint64_t i = 1 + random() % 4; i > 0; i--) {
                ChangeAtRandom(*file, content, random);
            }
            if (content.size() > 4 * MIB) {
                file->Truncate(700);
                content.resize(700);
            }
            file->Sync();
            const std::string found = ReadAll(*Mount(Cut(medium, medium->Events(), seed)), "f.csv");
            ASSERT_TRUE(found == content) << "seed " << seed << ", step " << step;
        }
    }
}

// The bytes of the partial last LBA are in the log. They change on the target while the file is longer, and
// the file may get its old size back.
TEST(PowerCutTest, AFileOfItsOldSizeWithOtherBytesAtItsEnd) {
    for (const uint32_t lba_size : {512u, 4096u}) {
        const Medium medium = Formatted(lba_size, SimulatedFua::HONOURED);
        auto volume = Mount(medium);
        auto file = volume->Open("f.csv", WriteMode());
        std::string content(700, 'a');
        const std::string more(MIB + 4096, 'm'), other(50, 'o');
        file->Append(content.data(), content.size());
        file->Sync();
        file->Append(more.data(), more.size()); // so much that the old end is written to the target
        file->Write(other.data(), other.size(), 600);
        file->Truncate(content.size());
        file->Sync();
        content.replace(600, other.size(), other);
        const std::string found = ReadAll(*Mount(Cut(medium, medium->Events(), 1)), "f.csv");
        EXPECT_TRUE(found == content) << "LBA size " << lba_size;
    }
}

// A database that was being made when the power went is not there: DuckDB would refuse an empty file.
TEST(PowerCutTest, WhatWasNeverSyncedIsNotThere) {
    const Medium medium = Formatted(512, SimulatedFua::HONOURED);
    const std::string header(4096, 'h');
    auto volume = Mount(medium);
    auto made = volume->Open("made.duckdb", WriteMode(FileKind::DATABASE));
    made->Write(header.data(), header.size(), 0);
    auto other = volume->Open("other.wal", WriteMode());
    other->Append("x", 1);
    other->Sync();
    volume->Open("gone.duckdb", WriteMode(FileKind::DATABASE));
    volume->Remove("gone.duckdb");
    EXPECT_EQ(ReadState(*Mount(Cut(medium, medium->Events(), 1))), (State{{"other.wal", "x"}}));
    volume->Move("made.duckdb", "moved.duckdb");
    EXPECT_EQ(ReadState(*Mount(Cut(medium, medium->Events(), 1))),
              (State{{"other.wal", "x"}, {"moved.duckdb", header}}));
    auto replaced = volume->Open("replaced", WriteMode());
    volume->Move("moved.duckdb", "replaced");
    EXPECT_EQ(ReadState(*Mount(Cut(medium, medium->Events(), 1))),
              (State{{"other.wal", "x"}, {"replaced", header}}));
}

// A killed process leaves records in the cache of the device. The next mount reads them and gives out the space that
// they free. Without a flush before, a power cut could lose such a record and keep what was written into that space.
TEST(PowerCutTest, WhatAKilledProcessFreedIsWholeAfterACut) {
    const std::string content(10 * MIB, 'a'), other(10 * MIB, 'o');
    size_t removed = 0;
    for (uint64_t flushes = 0; flushes < 6; flushes++) { // one may be of the thread that deallocates
        const Medium medium = Formatted(4096, SimulatedFua::NONE);
        auto volume = Mount(medium);
        volume->Open("a", WriteMode())->Append(content.data(), content.size());
        volume.reset();
        try {
            volume = Volume::MountDevice(
                FakeTarget(),
                std::make_unique<KilledAtFlush>(OpenSimulatedDevice(medium, FakeTarget(), {}), flushes),
                MountOptions(), std::make_shared<IoStats>());
            volume->Remove("a");
        } catch (const Error &) {
            // Killed.
        }
        volume.reset();
        const uint64_t killed = medium->Events();
        volume = Mount(medium);
        if (ReadState(*volume).empty()) {
            removed++;
            volume->Open("b", WriteMode())->Write(other.data(), other.size(), 0);
        }
        volume.reset();
        for (uint64_t cut = killed; cut <= medium->Events(); cut++) {
            for (uint64_t seed = 0; seed < 4; seed++) {
                const State found = ReadState(*Mount(Cut(medium, cut, seed)));
                ASSERT_TRUE(found.count("a") == 0 || found.at("a") == content)
                    << "killed at flush " << flushes << ", cut after event " << cut << ", seed " << seed;
            }
        }
    }
    EXPECT_GT(removed, 1u);
}

} // namespace rawduck
