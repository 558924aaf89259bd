//! Snapshots and clones of files on a volume: what they hold, what they take, and what they refuse.

#include "io/device/simulated/simulated_device.hpp"
#include "support/out_of_memory.hpp"
#include "support/volume_fixture.hpp"
#include "volume/check.hpp"
#include "volume/journal/read_journal.hpp"

#include <map>

namespace rawduck {

namespace {

constexpr uint32_t LBA = 512;

void Append(Volume &volume, const std::string &name, const std::string &bytes) {
    volume.Open(name, WriteMode())->Append(bytes.data(), bytes.size());
}

void WriteAt(Volume &volume, const std::string &name, const std::string &bytes, uint64_t offset) {
    volume.Open(name, WriteMode())->Write(bytes.data(), bytes.size(), offset);
}

uint64_t Used(const Volume &volume) {
    return volume.Info().used_bytes;
}

void RequireSound(const MemoryVolume &memory) {
    for (const CheckFinding &finding : CheckVolume(memory.name)) {
        EXPECT_TRUE(finding.severity == CheckFinding::Severity::OK || finding.what.rfind("file ", 0) == 0)
            << finding.what << ": " << finding.detail;
    }
}

std::string Text(ErrorCode expected, const std::function<void()> &action) {
    std::string text;
    EXPECT_EQ(FailureOf(action, &text), expected) << text;
    return text;
}

} // namespace

TEST(SnapshotTest, KeepsWhatWasDurable) {
    for (const uint32_t lba_size : {512u, 4096u}) {
        const MemoryVolume memory(lba_size);
        std::mt19937_64 random(1);
        const std::string before = RandomBytes(random, 100000);
        {
            auto volume = memory.Mount();
            Append(*volume, "x.duckdb", before);
            auto file = volume->Open("x.duckdb", WriteMode());
            file->Append("not durable", 11);
            file->Write(before.data(), 4096, 8192);
            volume->Snapshot("x.duckdb", "monday");
            EXPECT_EQ(ReadAll(*volume, "x.duckdb@monday"), before);
            file->Close();
            WriteAt(*volume, "x.duckdb", std::string(70000, 'z'), 20000);
            volume->Open("x.duckdb", WriteMode())->Truncate(50000);
            Append(*volume, "x.duckdb", std::string(300, 'q'));
            EXPECT_EQ(ReadAll(*volume, "x.duckdb@monday"), before);
        }
        auto volume = memory.Mount();
        EXPECT_EQ(ReadAll(*volume, "x.duckdb@monday"), before);
        EXPECT_EQ(ReadAll(*volume, "x.duckdb").substr(50000), std::string(300, 'q'));
        const auto snapshots = volume->Snapshots();
        ASSERT_EQ(snapshots.size(), 1u);
        EXPECT_EQ(snapshots[0].file, "x.duckdb");
        EXPECT_EQ(snapshots[0].snapshot, "monday");
        EXPECT_EQ(snapshots[0].size, before.size());
        volume.reset();
        RequireSound(memory);
    }
}

TEST(SnapshotTest, TakesSpaceOnlyForWhatChanges) {
    const MemoryVolume memory(LBA);
    auto volume = memory.Mount();
    Append(*volume, "x", std::string(8 * MIB, 'x'));
    const uint64_t before = Used(*volume);
    volume->Snapshot("x", "a");
    volume->Clone("x@a", "y");
    EXPECT_EQ(Used(*volume), before);
    EXPECT_EQ(volume->Snapshots()[0].not_shared, 0u);
    WriteAt(*volume, "x", std::string(MIB, 'n'), MIB);
    EXPECT_EQ(Used(*volume), before + MIB);
    volume->Remove("y");
    EXPECT_EQ(Used(*volume), before + MIB);
    EXPECT_EQ(volume->Snapshots()[0].not_shared, MIB);
    volume->DropSnapshot("x@a");
    EXPECT_EQ(Used(*volume), before);
    volume->Remove("x");
    EXPECT_EQ(Used(*volume), 0u);
    volume.reset();
    RequireSound(memory);
    EXPECT_EQ(Used(*memory.Mount()), 0u);
}

// With its logs, of which those count that were durable.
TEST(SnapshotTest, ADatabaseHasItsLogs) {
    const MemoryVolume memory(LBA);
    auto volume = memory.Mount();
    Append(*volume, "d/x.duckdb", std::string(20000, 'd'));
    Append(*volume, "d/x.duckdb.wal", "log");
    Append(*volume, "d/x.duckdb.wal.checkpoint", "more");
    auto unborn = volume->Open("d/x.duckdb.wal.recovery", WriteMode());
    volume->Snapshot("d/x.duckdb", "2026-11-25T01:00");
    volume->Clone("d/x.duckdb@2026-11-25T01:00", "y.duckdb");
    Append(*volume, "d/x.duckdb.wal", "!");
    EXPECT_EQ(ReadAll(*volume, "d/x.duckdb@2026-11-25T01:00.wal"), "log");
    EXPECT_EQ(ReadAll(*volume, "d/x.duckdb@2026-11-25T01:00.wal.checkpoint"), "more");
    EXPECT_FALSE(volume->FileExists("d/x.duckdb@2026-11-25T01:00.wal.recovery"));
    Append(*volume, "y.duckdb.wal", "?");
    EXPECT_EQ(ReadAll(*volume, "y.duckdb.wal"), "log?");
    EXPECT_EQ(ReadAll(*volume, "y.duckdb.wal.checkpoint"), "more");
    EXPECT_EQ(ReadAll(*volume, "d/x.duckdb.wal"), "log!");
    ASSERT_EQ(volume->Snapshots().size(), 1u);
    EXPECT_EQ(volume->Snapshots()[0].size, 20007u);
    volume->DropSnapshot("d/x.duckdb@2026-11-25T01:00");
    EXPECT_EQ(volume->Snapshots().size(), 0u);
    EXPECT_EQ(volume->Files().size(), 7u);
}

TEST(SnapshotTest, WhatIsRefused) {
    const MemoryVolume memory(LBA);
    auto volume = memory.Mount();
    Append(*volume, "x.duckdb@taken",
           "a file of that name"); // before there is a file that it could be a snapshot of
    Append(*volume, "x.duckdb", "content");
    Append(*volume, "x.duckdb.wal", "log");
    Append(*volume, "z.duckdb.wal", "a log");
    volume->MakeDirectory("folder");
    volume->Snapshot("x.duckdb", "one");
    for (const char *name : {"", "a/b", "a@b", "a b", ".wal", "x.wal", "x.wal.checkpoint", "latest"}) {
        Text(ErrorCode::INVALID, [&] { volume->Snapshot("x.duckdb", name); });
    }
    Text(ErrorCode::INVALID, [&] { volume->Snapshot("x.duckdb", std::string(65, 'a')); });
    Text(ErrorCode::EXISTS, [&] { volume->Snapshot("x.duckdb", "one"); });
    Text(ErrorCode::EXISTS, [&] { volume->Snapshot("x.duckdb", "taken"); });
    Text(ErrorCode::NOT_FOUND, [&] { volume->Snapshot("y.duckdb", "one"); });
    Text(ErrorCode::INVALID, [&] { volume->Snapshot("x.duckdb@one", "two"); });
    Text(ErrorCode::INVALID, [&] { volume->Snapshot("x.duckdb.wal", "two"); });
    Text(ErrorCode::INVALID, [&] { volume->Snapshot("folder", "two"); });
    Text(ErrorCode::EXISTS, [&] { volume->Clone("x.duckdb@one", "x.duckdb"); });
    Text(ErrorCode::EXISTS, [&] { volume->Clone("x.duckdb@one", "z.duckdb"); });
    Text(ErrorCode::NOT_FOUND, [&] { volume->Clone("x.duckdb@two", "y.duckdb"); });
    Text(ErrorCode::INVALID, [&] { volume->Clone("x.duckdb@one", "y.wal"); });
    Text(ErrorCode::NOT_FOUND, [&] { volume->DropSnapshot("x.duckdb"); });
    Text(ErrorCode::NOT_FOUND, [&] { volume->DropSnapshot("x.duckdb@taken"); });
    Text(ErrorCode::NOT_FOUND, [&] { volume->DropSnapshot("x.duckdb@one.wal"); });
    for (const char *name : {"x.duckdb@one", "x.duckdb@one.wal"}) {
        Text(ErrorCode::READ_ONLY, [&] { volume->Open(name, WriteMode()); });
        Text(ErrorCode::READ_ONLY, [&] { volume->Remove(name); });
        Text(ErrorCode::READ_ONLY, [&] { volume->Move(name, "elsewhere"); });
        Text(ErrorCode::READ_ONLY, [&] { volume->Move("x.duckdb@taken", name); });
    }
    Text(ErrorCode::READ_ONLY, [&] { volume->Open("x.duckdb@one.wal.recovery", WriteMode()); });
    {
        OpenMode reading;
        reading.lock = OpenMode::Lock::SHARED;
        auto attached = volume->Open("x.duckdb@one", reading);
        Text(ErrorCode::LOCKED, [&] { volume->DropSnapshot("x.duckdb@one"); });
    }
    volume->Remove("x.duckdb"); // what a snapshot keeps outlives what it is of
    volume->Clone("x.duckdb@one", "x.duckdb.again");
    EXPECT_EQ(ReadAll(*volume, "x.duckdb.again"), "content");
    volume->DropSnapshot("x.duckdb@one");
}

// Whoever has a removed file open may go on writing to it.
TEST(SnapshotTest, ARemovedFileThatIsOpenLeavesIt) {
    const MemoryVolume memory(LBA);
    auto volume = memory.Mount();
    const std::string content(300000, 'c');
    Append(*volume, "x", content);
    volume->Snapshot("x", "s");
    auto file = volume->Open("x", WriteMode());
    volume->Remove("x");
    file->Write(std::string(300000, 'n').data(), 300000, 0);
    file->Truncate(1000);
    file->Append(std::string(5000, 'm').data(), 5000);
    EXPECT_EQ(ReadAll(*volume, "x@s"), content);
    volume->DropSnapshot("x@s");
    std::string read(1000, '?');
    EXPECT_EQ(file->Read(&read[0], read.size(), 0), read.size());
    EXPECT_EQ(read, std::string(1000, 'n'));
    file->Close();
    EXPECT_EQ(Used(*volume), 0u);
}

// A hint of DuckDB's that it does not need a block any more is about its own file.
TEST(SnapshotTest, WhatItHasIsNotDeallocated) {
    SimulatedOptions options;
    options.capacity_bytes = 32 * MIB;
    options.lba_size = options.atomic_write_bytes = LBA;
    const auto medium = std::make_shared<SimulatedMedium>(options);
    const Target target = ResolveTarget("simulated:snapshot");
    const auto open = [&] { return OpenSimulatedDevice(medium, target, {}); };
    {
        BlockIo io(open(), BlockIoOptions(), target.name, std::make_shared<IoStats>());
        Volume::FormatDevice(io, FormatOptions(), LBA);
        EXPECT_EQ(ReadJournal(io).superblock.incompat, 0u);
    }
    const std::string content(400000, 'c');
    {
        auto volume = Volume::MountDevice(target, open(), MountOptions(), std::make_shared<IoStats>());
        Append(*volume, "x", content);
        volume->Snapshot("x", "s");
        volume->Open("x", WriteMode())->Deallocate(20480, 300000);
        EXPECT_EQ(ReadAll(*volume, "x@s"), content);
    }
    BlockIo io(open(), BlockIoOptions(), target.name, std::make_shared<IoStats>());
    EXPECT_EQ(ReadJournal(io).superblock.incompat, INCOMPAT_SHARED) << "older code refuses the volume";
}

// Of files that share what nobody says is shared one would be written into the other.
TEST(SnapshotTest, WithoutItsFeatureBitNothingIsWritten) {
    SimulatedOptions options;
    options.capacity_bytes = 32 * MIB;
    options.lba_size = options.atomic_write_bytes = LBA;
    const auto medium = std::make_shared<SimulatedMedium>(options);
    const Target target = ResolveTarget("simulated:unsaid");
    const auto open = [&] { return OpenSimulatedDevice(medium, target, {}); };
    const auto mount = [&] {
        return Volume::MountDevice(target, open(), MountOptions(), std::make_shared<IoStats>());
    };
    const std::string content(400000, 'c');
    {
        BlockIo io(open(), BlockIoOptions(), target.name, std::make_shared<IoStats>());
        Volume::FormatDevice(io, FormatOptions(), LBA);
        auto volume = mount();
        Append(*volume, "x", content);
        volume->Snapshot("x", "s");
    }
    {
        BlockIo io(open(), BlockIoOptions(), target.name, std::make_shared<IoStats>());
        TreeSuperblock superblock = ReadJournal(io).superblock;
        superblock.incompat = 0;
        SealSuperblock(superblock);
        for (const uint64_t unit : {uint64_t(0), superblock.capacity_units - 1}) {
            io.Write(unit * ALLOCATION_UNIT_BYTES, reinterpret_cast<const char *>(&superblock),
                     sizeof superblock);
        }
        io.Flush();
    }
    auto volume = mount();
    EXPECT_NE(volume->Info().poisoned.find("files share space"), std::string::npos);
    EXPECT_EQ(FailureOf([&] { Append(*volume, "x", content); }), ErrorCode::POISONED);
    EXPECT_EQ(ReadAll(*volume, "x@s"), content);
}

// As many extents as a file has in trees of its own: pages are shared, and copied one by one.
TEST(SnapshotTest, FilesOfManyExtents) {
    const MemoryVolume memory(4096, 256 * MIB);
    std::mt19937_64 random(5);
    std::map<std::string, std::string> contents;
    auto volume = memory.Mount();
    std::string content = RandomBytes(random, 12 * MIB);
    Append(*volume, "x", content);
    const auto scatter = [&](const std::string &name, std::string &bytes, int writes) {
        auto file = volume->Open(name, WriteMode());
        for (int i = 0; i < writes; i++) {
            const uint64_t unit = random() % (bytes.size() / 4096);
            const std::string block = RandomBytes(random, 4096);
            file->Write(block.data(), block.size(), unit * 4096);
            bytes.replace(unit * 4096, 4096, block);
        }
    };
    scatter("x", content, 2000);
    EXPECT_GT(volume->Info().extents, 1000u);
    for (int round = 0; round < 6; round++) {
        const std::string name = std::to_string(round);
        volume->Snapshot("x", name);
        contents["x@" + name] = content;
        volume->Clone("x@" + name, "y" + name);
        std::string cloned = content;
        scatter("y" + name, cloned, 20);
        contents["y" + name] = cloned;
        scatter("x", content, 20);
        contents["x"] = content;
    }
    for (int round = 0; round < 2; round++) {
        for (const auto &[name, expected] : contents) {
            ASSERT_TRUE(ReadAll(*volume, name) == expected) << name;
        }
        volume.reset();
        RequireSound(memory);
        volume = memory.Mount();
    }
    for (const auto &[name, expected] : contents) {
        name[0] == 'x' && name.size() > 1 ? volume->DropSnapshot(name) : volume->Remove(name);
        volume.reset();
        RequireSound(memory);
        volume = memory.Mount();
    }
    EXPECT_EQ(Used(*volume), 0u);
}

// It is there with its log, or neither is.
TEST(SnapshotTest, WithoutMemoryItIsDroppedWholeOrNotAtAll) {
    int failures = 0;
    for (int64_t step = 0; step < 80; step++) {
        const MemoryVolume memory(LBA);
        auto volume = memory.Mount();
        Append(*volume, "x.duckdb", std::string(30000, 'x'));
        Append(*volume, "x.duckdb.wal", "log");
        const std::string name(40, 's');
        volume->Snapshot("x.duckdb", name);
        {
            const OutOfMemoryAfter limit(step);
            try {
                volume->DropSnapshot("x.duckdb@" + name);
            } catch (const std::bad_alloc &) {
                failures++;
            }
        }
        const bool there = volume->FileExists("x.duckdb@" + name);
        EXPECT_EQ(volume->FileExists("x.duckdb@" + name + ".wal"), there) << "step " << step;
        if (!there) {
            volume->Snapshot("x.duckdb", name);
        }
        volume->DropSnapshot("x.duckdb@" + name);
        EXPECT_EQ(volume->Files().size(), 2u);
        volume.reset();
        RequireSound(memory);
    }
    EXPECT_GT(failures, 10);
}

// Each of them gets metadata of its own when it is written to, which there is room for on a full volume.
TEST(SnapshotTest, ClonesOfAFileThatHadManyExtents) {
    const MemoryVolume memory(LBA);
    auto volume = memory.Mount();
    const std::string content(40 * ALLOCATION_UNIT_BYTES, 'x'), page(ALLOCATION_UNIT_BYTES, 'p');
    {
        auto file = volume->Open("x", WriteMode());
        file->Append(content.data(), content.size());
        file->Sync();
        for (uint64_t unit = 4; unit < 40; unit += 2) {
            file->Write(page.data(), page.size(), unit * ALLOCATION_UNIT_BYTES);
        }
        file->Sync();
        EXPECT_GT(volume->Info().extents, 20u);
        file->Truncate(4 * ALLOCATION_UNIT_BYTES);
    }
    constexpr int CLONES = 1000;
    for (int i = 0; i < CLONES; i++) {
        volume->Clone("x", "clone" + std::to_string(i));
    }
    auto rest = volume->Open("rest", WriteMode());
    EXPECT_EQ(FailureOf([&] {
                  for (;;) {
                      rest->Append(content.data(), content.size());
                  }
              }),
              ErrorCode::NO_SPACE);
    for (int i = 0; i < CLONES; i++) {
        auto file = volume->Open("clone" + std::to_string(i), WriteMode());
        try {
            file->Write(page.data(), page.size(), ALLOCATION_UNIT_BYTES);
        } catch (const Error &error) {
            ASSERT_EQ(error.Code(), ErrorCode::NO_SPACE) << error.what();
        }
        file->Close();
        ASSERT_EQ(volume->Info().poisoned, "") << i;
    }
    rest.reset();
    volume.reset();
    RequireSound(memory);
}

// Until nothing fits any more: what is refused changes nothing, and commits to what is there go on.
TEST(SnapshotTest, OnAFullVolume) {
    const MemoryVolume memory(LBA, 16 * MIB);
    auto volume = memory.Mount();
    std::string content(6 * MIB, 'x');
    Append(*volume, "x", content);
    auto log = volume->Open("x.wal", WriteMode(FileKind::WAL));
    std::string logged;
    int snapshots = 0;
    std::map<std::string, std::string> kept;
    for (int i = 0; i < 400; i++) {
        const std::string block(4096, static_cast<char>('a' + i % 26)), name = std::to_string(i);
        try {
            volume->Snapshot("x", name);
            kept["x@" + name] = content;
            snapshots++;
            const uint64_t offset = static_cast<uint64_t>(i * 37 % 1500) * 4096;
            WriteAt(*volume, "x", block, offset);
            content.replace(offset, block.size(), block);
        } catch (const Error &error) {
            ASSERT_EQ(error.Code(), ErrorCode::NO_SPACE) << error.what();
        }
        log->Append(block.data(), 100);
        log->Sync();
        logged += block.substr(0, 100);
        ASSERT_EQ(volume->Info().poisoned, "");
    }
    EXPECT_GT(snapshots, 20);
    log->Close();
    EXPECT_TRUE(ReadAll(*volume, "x.wal") == logged);
    volume.reset();
    RequireSound(memory);
    volume = memory.Mount();
    for (const auto &[name, expected] : kept) {
        ASSERT_TRUE(ReadAll(*volume, name) == expected) << name;
        volume->DropSnapshot(name);
    }
    EXPECT_TRUE(ReadAll(*volume, "x") == content);
    volume->Remove("x");
    volume->Remove("x.wal");
    EXPECT_EQ(Used(*volume), 0u);
}

} // namespace rawduck
