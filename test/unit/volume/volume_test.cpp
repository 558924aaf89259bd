#include "common/error.hpp"
#include "io/open_device.hpp"
#include "support/test_support.hpp"
#include "support/volume_fixture.hpp"
#include "volume/check.hpp"
#include "volume/names/file_name.hpp"

#include <thread>
#include <unistd.h>

namespace rawduck {

ErrorCode CodeOf(const std::function<void()> &action) {
    try {
        action();
    } catch (const Error &error) {
        EXPECT_GT(std::string(error.what()).size(), 20u) << error.what();
        return error.Code();
    }
    ADD_FAILURE() << "no error";
    return ErrorCode::IO;
}

class VolumeTest : public ::testing::TestWithParam<uint32_t> {
  protected:
    MemoryVolume memory{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(LbaSizes, VolumeTest, ::testing::Values(512, 4096));

TEST_P(VolumeTest, SyncedBytesSurviveAMountAndUnsyncedOnesOnlyThroughClose) {
    auto volume = memory.Mount();
    auto file = volume->Open("a/b.csv", WriteMode());
    file->Append("hello ", 6);
    file->Append("world", 5);
    EXPECT_EQ(file->Size(), 11u);
    file->Close();
    volume.reset();
    EXPECT_EQ(ReadAll(*memory.Mount(), "a/b.csv"), "hello world");
}

TEST_P(VolumeTest, AppendsOfAnyLengthKeepTheirNeighbours) {
    std::mt19937_64 random(6);
    std::string oracle;
    for (int round = 0; round < 40; round++) {
        auto volume = memory.Mount();
        auto file = volume->Open("log.wal", WriteMode());
        for (int i = 0; i < 10; i++) {
            const std::string bytes = RandomBytes(random, random() % 9000);
            EXPECT_EQ(file->Append(bytes.data(), bytes.size()), oracle.size());
            oracle += bytes;
            file->Sync();
        }
        ASSERT_EQ(ReadAll(*volume, "log.wal"), oracle);
    }
    EXPECT_EQ(ReadAll(*memory.Mount(), "log.wal"), oracle);
}

TEST_P(VolumeTest, BlocksWrittenOutOfOrderLeaveZerosWhereNothingWasWritten) {
    auto volume = memory.Mount();
    auto file = volume->Open("x.duckdb", WriteMode(FileKind::DATABASE));
    const std::string block(256 * KIB, 'b');
    file->Write(block.data(), block.size(), 12288 + 3 * block.size());
    file->Write(block.data(), block.size(), 12288 + block.size());
    std::string expected(12288 + 4 * block.size(), '\0');
    std::fill(expected.begin() + 12288 + block.size(), expected.begin() + 12288 + 2 * block.size(), 'b');
    std::fill(expected.begin() + 12288 + 3 * block.size(), expected.end(), 'b');
    EXPECT_EQ(ReadAll(*volume, "x.duckdb"), expected);
    file->Close();
    volume.reset();
    EXPECT_EQ(ReadAll(*memory.Mount(), "x.duckdb"), expected) << "holes are durable";
}

TEST_P(VolumeTest, TemporaryFilesAreGoneAtTheNextMountAndCostNoRecords) {
    auto volume = memory.Mount();
    const uint64_t free_before = volume->Info().free_bytes;
    auto file = volume->Open("tmp/duckdb_temp_1_0_storage_DEFAULT-0.tmp", WriteMode(FileKind::TEMP));
    const std::string bytes(3 * MIB, 't');
    file->Write(bytes.data(), bytes.size(), 0);
    file->Close();
    EXPECT_EQ(volume->Info().log_records, 0u) << "nothing was logged";
    EXPECT_FALSE(volume->Idle()) << "the temporary file is in use";
    EXPECT_EQ(ReadAll(*volume, "tmp/duckdb_temp_1_0_storage_DEFAULT-0.tmp"), bytes);
    volume->Remove("tmp/duckdb_temp_1_0_storage_DEFAULT-0.tmp");
    EXPECT_EQ(volume->Info().free_bytes, free_before);
    volume->Open("duckdb_temp_storage_DEFAULT-1.tmp", WriteMode(FileKind::TEMP))->Append("x", 1);
    volume.reset();
    EXPECT_EQ(memory.Mount()->Files().size(), 0u);
}

TEST_P(VolumeTest, ANameAloneMakesNoFileTemporary) {
    auto volume = memory.Mount();
    const std::string blocks = "duckdb_temp_" + std::to_string(getpid()) + "_0_storage_DEFAULT-0.tmp";
    volume->Open(blocks, WriteMode())->Append("durable", 7);
    volume->Open("plain", WriteMode())->Append("moved", 5);
    volume->Move("plain", "duckdb_temp_1");
    volume->Open("spilled", WriteMode(FileKind::TEMP))->Append("x", 1);
    EXPECT_EQ(CodeOf([&] { volume->Open("spilled", WriteMode()); }), ErrorCode::EXISTS);
    EXPECT_EQ(CodeOf([&] { volume->Move("duckdb_temp_1", "spilled"); }), ErrorCode::UNSUPPORTED);
    volume.reset();
    volume = memory.Mount();
    EXPECT_EQ(volume->Files().size(), 2u);
    EXPECT_EQ(ReadAll(*volume, blocks), "durable");
    EXPECT_EQ(ReadAll(*volume, "duckdb_temp_1"), "moved");
}

TEST(TemporaryNameTest, OnlyNamesOfThisProcessInDuckDBsForm) {
    const std::string own = "duckdb_temp_" + std::to_string(getpid()) + "_";
    EXPECT_EQ(TemporaryNameOf(own + "0_storage_DEFAULT-0.tmp"), TemporaryName::BLOCKS);
    EXPECT_EQ(TemporaryNameOf("a/b/" + own + "12_storage_S32K-7.tmp"), TemporaryName::BLOCKS);
    EXPECT_EQ(TemporaryNameOf(own + "0_block-77.block"), TemporaryName::BLOCK);
    EXPECT_EQ(TemporaryNameOf(own + "0_owner"), TemporaryName::OWNER);
    for (const std::string &name :
         {std::string("duckdb_temp_"), std::string("duckdb_temp_1.duckdb"),
          own + "0_storage_DEFAULT-0.tmp.wal", own + "0", own + "_owner", own + "0_storage_DEFAULT-0",
          own + "0_block-.block", "duckdb_temp_" + std::to_string(getpid() + 1) + "_0_owner",
          own + "0_owner/file"}) {
        EXPECT_EQ(TemporaryNameOf(name), TemporaryName::NONE) << name;
    }
}

TEST_P(VolumeTest, RemovedAndReplacedFilesStayReadableUntilClosed) {
    auto volume = memory.Mount();
    auto writer = volume->Open("old", WriteMode());
    writer->Append("old bytes", 9);
    writer->Close();
    auto other = volume->Open("new", WriteMode());
    other->Append("new", 3);
    other->Close();
    auto reader = volume->Open("old", OpenMode());
    volume->Move("new", "old");
    char bytes[9];
    EXPECT_EQ(reader->Read(bytes, 9, 0), 9u);
    EXPECT_EQ(std::string(bytes, 9), "old bytes");
    EXPECT_EQ(ReadAll(*volume, "old"), "new");
    EXPECT_FALSE(volume->FileExists("new"));
    const uint64_t used = volume->Info().used_bytes;
    reader->Close();
    EXPECT_LT(volume->Info().used_bytes, used) << "the replaced file's space comes back with its last close";
    volume.reset();
    EXPECT_EQ(ReadAll(*memory.Mount(), "old"), "new");
}

TEST_P(VolumeTest, WhatSomebodyHasLockedIsNotReplacedRemovedOrWrittenTo) {
    for (const OpenMode::Lock lock : {OpenMode::Lock::SHARED, OpenMode::Lock::EXCLUSIVE}) {
        auto volume = memory.Mount();
        volume->Open("new", WriteMode())->Write("new", 3, 0);
        OpenMode mode = WriteMode(FileKind::DATABASE);
        volume->Open("d/held", mode)->Append("held", 4);
        mode.write = lock == OpenMode::Lock::EXCLUSIVE;
        mode.lock = lock;
        auto held = volume->Open("d/held", mode);
        OpenMode emptying = WriteMode();
        emptying.truncate = true;
        EXPECT_EQ(CodeOf([&] { volume->Move("new", "d/held"); }), ErrorCode::LOCKED);
        EXPECT_EQ(CodeOf([&] { volume->Open("d/held", emptying); }), ErrorCode::LOCKED);
        EXPECT_EQ(CodeOf([&] { volume->Open("d/held", WriteMode()); }), ErrorCode::LOCKED);
        EXPECT_EQ(CodeOf([&] { volume->Remove("d/held"); }), ErrorCode::LOCKED);
        EXPECT_EQ(CodeOf([&] { volume->RemoveDirectory("d", true); }), ErrorCode::LOCKED);
        EXPECT_EQ(ReadAll(*volume, "d/held"), "held");
        EXPECT_EQ(ReadAll(*volume, "new"), "new");
        if (lock == OpenMode::Lock::EXCLUSIVE) {
            volume->Move("new", "d/held", MoveMode::REPLACE_OWN);
            EXPECT_EQ(ReadAll(*volume, "d/held"), "new");
        }
        held->Close();
        volume->Remove("d/held");
    }
}

TEST_P(VolumeTest, ANewNameReplacesNothing) {
    auto volume = memory.Mount();
    volume->Open("a", WriteMode())->Append("a", 1);
    volume->Open("b", WriteMode())->Append("bb", 2);
    EXPECT_EQ(CodeOf([&] { volume->Move("a", "b", MoveMode::NEW_NAME); }), ErrorCode::EXISTS);
    EXPECT_EQ(ReadAll(*volume, "a"), "a");
    EXPECT_EQ(ReadAll(*volume, "b"), "bb");
    volume->Move("a", "c", MoveMode::NEW_NAME);
    EXPECT_EQ(ReadAll(*volume, "c"), "a");
    EXPECT_FALSE(volume->FileExists("a"));
}

TEST_P(VolumeTest, TruncatedBytesNeverComeBack) {
    auto volume = memory.Mount();
    auto file = volume->Open("t", WriteMode());
    file->Append(std::string(10000, 'a').data(), 10000);
    file->Sync();
    file->Truncate(700);
    file->Write("z", 1, 9000);
    file->Close();
    volume.reset();
    std::string expected = std::string(700, 'a') + std::string(8300, '\0') + "z";
    EXPECT_EQ(ReadAll(*memory.Mount(), "t"), expected);
}

// DuckDB names the size that a file has once all blocks are written that were given out.
TEST_P(VolumeTest, TruncatingBeyondTheEndChangesNothing) {
    auto volume = memory.Mount();
    auto file = volume->Open("t", WriteMode());
    file->Append("content", 7);
    file->Truncate(1 << 20);
    EXPECT_EQ(ReadAll(*volume, "t"), "content");
    file->Write("z", 1, 1 << 20);
    EXPECT_EQ(file->Size(), (1u << 20) + 1);
}

TEST_P(VolumeTest, CreateNewEmptiesAndExclusiveCreateRefuses) {
    auto volume = memory.Mount();
    volume->Open("f", WriteMode())->Append("content", 7);
    OpenMode fresh = WriteMode();
    fresh.truncate = true;
    EXPECT_EQ(volume->Open("f", fresh)->Size(), 0u);
    OpenMode exclusive = WriteMode();
    exclusive.must_create = true;
    EXPECT_EQ(CodeOf([&] { volume->Open("f", exclusive); }), ErrorCode::EXISTS);
    EXPECT_EQ(CodeOf([&] { volume->Open("missing", OpenMode()); }), ErrorCode::NOT_FOUND);
    EXPECT_EQ(CodeOf([&] { volume->Open("f", OpenMode())->Append("x", 1); }), ErrorCode::READ_ONLY);
}

TEST_P(VolumeTest, LocksWithinTheProcess) {
    auto volume = memory.Mount();
    OpenMode writer = WriteMode(FileKind::DATABASE);
    writer.lock = OpenMode::Lock::EXCLUSIVE;
    OpenMode reader;
    reader.lock = OpenMode::Lock::SHARED;
    auto first = volume->Open("db", writer);
    EXPECT_EQ(CodeOf([&] { volume->Open("db", writer); }), ErrorCode::LOCKED);
    EXPECT_EQ(CodeOf([&] { volume->Open("db", reader); }), ErrorCode::LOCKED);
    first->Close();
    auto second = volume->Open("db", reader);
    auto third = volume->Open("db", reader);
    EXPECT_EQ(CodeOf([&] { volume->Open("db", writer); }), ErrorCode::LOCKED);
    second->Close();
    third->Close();
    volume->Open("db", writer)->Close();
}

TEST_P(VolumeTest, AFullVolumeFailsTheWriteAndGivesSpaceBack) {
    auto volume = memory.Mount();
    auto keep = volume->Open("keep.duckdb", WriteMode(FileKind::DATABASE));
    const std::string header(12288, 'h');
    keep->Write(header.data(), header.size(), 0);
    keep->Sync();
    const std::string block(256 * KIB, 'f');
    auto filler = volume->Open("filler.duckdb", WriteMode(FileKind::DATABASE));
    uint64_t written = 0;
    EXPECT_EQ(CodeOf([&] {
                  for (;; written += block.size()) {
                      filler->Write(block.data(), block.size(), written);
                  }
              }),
              ErrorCode::NO_SPACE);
    EXPECT_GT(written, 48 * MIB);
    filler->Sync();
    const std::string page(ALLOCATION_UNIT_BYTES, 'n');
    keep->Write(page.data(), page.size(), ALLOCATION_UNIT_BYTES);
    keep->Sync();
    filler->Close();
    volume->Remove("filler.duckdb");
    keep->Write(block.data(), block.size(), 12288);
    keep->Close();
    volume.reset();
    const std::string expected = std::string(4096, 'h') + page + std::string(4096, 'h') + block;
    EXPECT_EQ(ReadAll(*memory.Mount(), "keep.duckdb"), expected);
}

TEST_P(VolumeTest, DirectoriesAreMadeOrImplied) {
    auto volume = memory.Mount();
    EXPECT_TRUE(volume->DirectoryExists(""));
    EXPECT_FALSE(volume->DirectoryExists("d"));
    volume->MakeDirectory("d/e");
    volume->Open("d/f", WriteMode())->Append("1", 1);
    std::vector<std::string> seen;
    volume->List(
        "d", [&](const std::string &name, bool directory) { seen.push_back(name + (directory ? "/" : "")); });
    EXPECT_EQ(seen, (std::vector<std::string>{"e/", "f"}));
    EXPECT_EQ(CodeOf([&] { volume->Open("d/f/g", WriteMode()); }), ErrorCode::INVALID);
    EXPECT_EQ(CodeOf([&] { volume->Open("d", WriteMode()); }), ErrorCode::EXISTS);
    volume.reset();
    volume = memory.Mount();
    EXPECT_TRUE(volume->DirectoryExists("d/e"));
    EXPECT_FALSE(volume->RemoveDirectory("d", false));
    EXPECT_TRUE(volume->RemoveDirectory("d", true));
    volume.reset();
    EXPECT_EQ(memory.Mount()->Files().size(), 0u);
}

TEST_P(VolumeTest, BadNamesAreRefusedWithTheReason) {
    auto volume = memory.Mount();
    for (const std::string &name :
         {std::string(), std::string("a/../b"), std::string("."), std::string("/a"), std::string("a//b"),
          std::string("a/"), std::string(256, 'n'), std::string("a\0b", 3)}) {
        EXPECT_EQ(CodeOf([&] { volume->Open(name, WriteMode()); }), ErrorCode::INVALID) << name;
    }
    EXPECT_EQ(volume->Files().size(), 0u);
}

TEST_P(VolumeTest, ManyThreadsOnManyFiles) {
    auto volume = memory.Mount();
    std::vector<std::thread> threads;
    std::vector<std::string> contents(8);
    auto shared = volume->Open("shared.duckdb", WriteMode(FileKind::DATABASE));
    constexpr uint64_t BLOCK = 64 * KIB;
    for (int t = 0; t < 8; t++) {
        threads.emplace_back([&, t] {
            std::mt19937_64 random(t);
            auto log = volume->Open("log" + std::to_string(t), WriteMode());
            for (int i = 0; i < 60; i++) {
                const std::string bytes = RandomBytes(random, random() % 3000);
                log->Append(bytes.data(), bytes.size());
                contents[t] += bytes;
                log->Sync();
                const std::string block(BLOCK, static_cast<char>('a' + t));
                shared->Write(block.data(), BLOCK, 12288 + (i * 8 + t) % 96 * BLOCK);
                if (i % 10 == 0) {
                    shared->Sync();
                    auto scratch = volume->Open("scratch" + std::to_string(t), WriteMode());
                    scratch->Append(bytes.data(), bytes.size());
                    scratch->Close();
                    volume->Move("scratch" + std::to_string(t), "moved" + std::to_string(t));
                    volume->Remove("moved" + std::to_string(t));
                }
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    shared->Close();
    volume.reset();
    volume = memory.Mount();
    EXPECT_EQ(volume->Files().size(), 9u);
    for (int t = 0; t < 8; t++) {
        EXPECT_EQ(ReadAll(*volume, "log" + std::to_string(t)), contents[t]);
    }
    const std::string blocks = ReadAll(*volume, "shared.duckdb");
    for (uint64_t at = 12288; at < blocks.size(); at += BLOCK) {
        EXPECT_EQ(blocks.substr(at, BLOCK), std::string(BLOCK, blocks[at])) << "a block is whole";
    }
}

TEST_P(VolumeTest, OneDamagedSuperblockIsSurvivedAndRepairedTwoAreReported) {
    const auto damage = [&](uint64_t offset) {
        BlockIo io(OpenDevice(ResolveTarget(memory.name), DeviceOptions()), BlockIoOptions(), memory.name,
                   std::make_shared<IoStats>());
        const std::string garbage(4096, 'g');
        io.Write(offset, garbage.data(), garbage.size());
    };
    memory.Mount()->Open("f", WriteMode())->Append("kept", 4);
    damage(0);
    {
        auto volume = memory.Mount();
        EXPECT_NE(volume->Info().warning.find("superblock 0"), std::string::npos);
        EXPECT_EQ(ReadAll(*volume, "f"), "kept");
        volume->Open("g", WriteMode())->Append("x", 1);
    }
    EXPECT_EQ(memory.Mount()->Info().warning, "") << "repaired by the write";
    damage(0);
    damage(64 * MIB - 4096);
    EXPECT_EQ(CodeOf([&] { memory.Mount(); }), ErrorCode::INVALID);
}

TEST_P(VolumeTest, FilesOfFragmentsAndManyNamesMountAgain) {
    auto volume = memory.Mount();
    std::vector<std::unique_ptr<OpenFile>> open;
    for (int i = 0; i < 300; i++) {
        auto file = volume->Open("many/file" + std::to_string(i), WriteMode());
        const std::string text = std::to_string(i);
        file->Append(text.data(), text.size());
        file->Close();
    }
    volume.reset();
    volume = memory.Mount();
    for (int i = 0; i < 300; i += 7) {
        EXPECT_EQ(ReadAll(*volume, "many/file" + std::to_string(i)), std::to_string(i));
    }
    volume.reset();
    for (const CheckFinding &finding : CheckVolume(memory.name)) {
        EXPECT_EQ(finding.severity, CheckFinding::Severity::OK) << finding.what << ": " << finding.detail;
    }
}

// The name of a mounted volume is looked at once more, not
// resolved: it must still be found to lead elsewhere.
TEST(RegistryTest, ANameLeadsToTheVolumeThatLiesThereNow) {
    const TemporaryFile first(16 * MIB), second(16 * MIB);
    FormatOptions options;
    options.force = true;
    for (const TemporaryFile *file : {&first, &second}) {
        options.label = file == &first ? "first" : "second";
        Volume::Format(file->Path(), options);
    }
    const std::string name = first.Path() + ".link";
    ASSERT_EQ(symlink(first.Path().c_str(), name.c_str()), 0);
    const auto label = [](const VolumePin &pin) { return pin->Info().label; };
    {
        const VolumePin pin = PinVolume(name, MountOptions());
        EXPECT_EQ(&*PinVolume(name, MountOptions()), &*pin);
        EXPECT_EQ(&*PinVolume(first.Path(), MountOptions()), &*pin) << "by another name";
        ASSERT_EQ(unlink(name.c_str()), 0);
        ASSERT_EQ(symlink(second.Path().c_str(), name.c_str()), 0);
        EXPECT_EQ(label(PinVolume(name, MountOptions())), "second");
        EXPECT_EQ(label(pin), "first");
        ASSERT_EQ(unlink(name.c_str()), 0);
        EXPECT_THROW(PinVolume(name, MountOptions()), Error);
    }
    EXPECT_EQ(label(PinVolume(first.Path(), MountOptions())), "first") << "mounted anew";
    EXPECT_THROW(PinVolume("relative", MountOptions()), Error);
}

TEST(DefaultLbaSize, IsNeverLessThanTheDiskWritesAtOnce) {
    EXPECT_EQ(DefaultLbaSize(TargetKind::BLOCK_DEVICE, 512, 512), 512u);
    EXPECT_EQ(DefaultLbaSize(TargetKind::BLOCK_DEVICE, 512, 4096), 4096u);
    EXPECT_EQ(DefaultLbaSize(TargetKind::BLOCK_DEVICE, 512, 16384), 4096u);
    EXPECT_EQ(DefaultLbaSize(TargetKind::NVME_CHARACTER_DEVICE, 4096, 4096), 4096u);
    EXPECT_EQ(DefaultLbaSize(TargetKind::REGULAR_FILE, 512, 512), 4096u);
}

} // namespace rawduck
