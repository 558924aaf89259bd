//! What a commit costs the device: no write that is not needed,
//! all in flight together, one round trip more at most.

#include "io/device/simulated/simulated_device.hpp"
#include "support/volume_fixture.hpp"

namespace rawduck {

namespace {

constexpr uint32_t LBA = 512;

//! A volume with one log in it that has been synced before.
class CommitCostTest : public ::testing::Test {
  protected:
    void Mount(SimulatedFua fua, bool volatile_write_cache) {
        const Target target = ResolveTarget("simulated:commits");
        SimulatedOptions options;
        options.capacity_bytes = 16 * MIB;
        options.lba_size = options.atomic_write_bytes = LBA;
        options.fua = fua;
        options.volatile_write_cache = volatile_write_cache;
        const auto medium = std::make_shared<SimulatedMedium>(options);
        {
            BlockIo io(OpenSimulatedDevice(medium, target, {}), BlockIoOptions(), target.name,
                       std::make_shared<IoStats>());
            Volume::FormatDevice(io, FormatOptions(), LBA);
        }
        volume = Volume::MountDevice(target, OpenSimulatedDevice(medium, target, {}), MountOptions(), stats);
        wal = volume->Open("x.wal", WriteMode(FileKind::WAL));
        Commit(10);
        AwaitCheckpoint(*volume);
    }
    void Commit(size_t bytes) {
        const std::string data = RandomBytes(random, bytes);
        content += data;
        stats->Reset();
        wal->Append(data.data(), data.size());
        wal->Sync();
    }
    IoCounters Writes() const { return stats->Snapshot(IoOperation::WRITE); }
    uint64_t Flushes() const { return stats->Snapshot(IoOperation::FLUSH).commands; }
    void TearDown() override {
        if (!wal) {
            return;
        }
        wal.reset();
        EXPECT_EQ(ReadAll(*volume, "x.wal"), content);
    }

    std::mt19937_64 random{1};
    std::string content;
    std::shared_ptr<IoStats> stats = std::make_shared<IoStats>();
    std::shared_ptr<Volume> volume;
    std::unique_ptr<OpenFile> wal;
};

} // namespace

TEST_F(CommitCostTest, AListOfHolesThatDidNotChangeIsNotWrittenAgain) {
    Mount(SimulatedFua::HONOURED, true);
    auto sparse = volume->Open("sparse.duckdb", WriteMode(FileKind::DATABASE));
    const std::string block(ALLOCATION_UNIT_BYTES, 'b');
    constexpr uint64_t HOLES = 400;
    for (uint64_t i = 0; i < HOLES; i++) {
        sparse->Write(block.data(), block.size(), (2 * i + 1) * ALLOCATION_UNIT_BYTES);
    }
    sparse->Sync();
    const uint64_t before = volume->Info().log_bytes;
    sparse->Write(block.data(), block.size(), 2 * HOLES * ALLOCATION_UNIT_BYTES); // grows, and leaves no hole
    sparse->Sync();
    EXPECT_LE(volume->Info().log_bytes - before, 2 * LBA);
    sparse->Write(block.data(), block.size(), 2 * ALLOCATION_UNIT_BYTES);
    sparse->Sync();
    EXPECT_GT(volume->Info().log_bytes - before, 16 * (HOLES - 1));
    sparse.reset();
    wal.reset();
    const std::string found = ReadAll(*volume, "sparse.duckdb");
    for (uint64_t i = 0; i <= 2 * HOLES; i++) {
        const bool written = i % 2 == 1 || i == 2 || i == 2 * HOLES;
        ASSERT_EQ(found[i * ALLOCATION_UNIT_BYTES], written ? 'b' : '\0') << i;
    }
}

TEST_F(CommitCostTest, BytesThatFitIntoTheRecordCostOneWriteAndOneFlush) {
    Mount(SimulatedFua::NONE, true);
    Commit(100);
    EXPECT_EQ(Writes().commands, 1u);
    EXPECT_EQ(Flushes(), 1u);
}

TEST_F(CommitCostTest, DataAndRecordAreInFlightTogetherBeforeOneFlush) {
    Mount(SimulatedFua::NONE, true);
    Commit(5000);
    EXPECT_EQ(Writes().requests, 1u);
    EXPECT_EQ(Writes().commands, 2u);
    EXPECT_EQ(Writes().depth_max, 2u);
    EXPECT_EQ(Flushes(), 1u);
}

TEST_F(CommitCostTest, WithFuaThereIsNoFlush) {
    Mount(SimulatedFua::HONOURED, true);
    Commit(5000);
    EXPECT_EQ(Writes().commands, 2u);
    EXPECT_EQ(Writes().fua_commands, 2u);
    EXPECT_EQ(Writes().depth_max, 2u);
    EXPECT_EQ(Flushes(), 0u);
}

TEST_F(CommitCostTest, MuchDataIsFlushedEvenWithFua) {
    Mount(SimulatedFua::HONOURED, true);
    Commit(200000);
    EXPECT_EQ(Writes().fua_commands, 0u);
    EXPECT_EQ(Flushes(), 1u);
}

TEST_F(CommitCostTest, WithoutAVolatileWriteCacheThereIsNeither) {
    Mount(SimulatedFua::HONOURED, false);
    Commit(5000);
    EXPECT_EQ(Writes().commands, 2u);
    EXPECT_EQ(Writes().fua_commands, 0u);
    EXPECT_EQ(Flushes(), 0u);
}

TEST_F(CommitCostTest, ASyncWithNothingToSayCostsNothing) {
    Mount(SimulatedFua::HONOURED, true);
    Commit(5000);
    stats->Reset();
    wal->Sync();
    EXPECT_EQ(Writes().commands, 0u);
    EXPECT_EQ(Flushes(), 0u);
}

TEST_F(CommitCostTest, WhatIsInFlightReadsAsWritten) {
    Mount(SimulatedFua::NONE, true);
    Commit(5000);
    std::string read(content.size(), '?');
    wal->Read(&read[0], read.size(), 0);
    EXPECT_EQ(read, content);
}

} // namespace rawduck
