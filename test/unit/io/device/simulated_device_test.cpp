//! The simulated device: what is durable when, what a power cut leaves, and the faults.

#include "common/error.hpp"
#include "io/block_io.hpp"
#include "io/device/simulated/simulated_device.hpp"
#include "io/open_device.hpp"

#include <algorithm>
#include <cerrno>
#include <gtest/gtest.h>

namespace rawduck {
namespace {

constexpr uint32_t LBA = 512;

class SimulatedTest : public ::testing::Test {
  protected:
    explicit SimulatedTest(uint32_t atomic_write_bytes = LBA, bool volatile_write_cache = true) {
        SimulatedOptions options;
        options.capacity_bytes = MIB;
        options.lba_size = LBA;
        options.atomic_write_bytes = atomic_write_bytes;
        options.volatile_write_cache = volatile_write_cache;
        medium = std::make_shared<SimulatedMedium>(options);
        io = Open(medium);
    }

    static std::unique_ptr<BlockIo> Open(const std::shared_ptr<SimulatedMedium> &medium) {
        return std::make_unique<BlockIo>(
            OpenSimulatedDevice(medium, ResolveTarget("simulated:test"), DeviceOptions()), BlockIoOptions(),
            "simulated:test", std::make_shared<IoStats>());
    }

    void Write(uint64_t offset, char content, uint64_t length = LBA) {
        io->Write(offset, std::string(length, content).data(), length);
    }
    static std::string ReadFrom(const std::shared_ptr<SimulatedMedium> &from, uint64_t offset,
                                uint64_t length = LBA) {
        std::string bytes(length, '?');
        EXPECT_EQ(from->Read(offset, &bytes[0], length), static_cast<int64_t>(length));
        return bytes;
    }
    std::shared_ptr<SimulatedMedium> Cut(uint64_t events, uint64_t seed) {
        return medium->PowerCut(events, seed, report);
    }

    std::shared_ptr<SimulatedMedium> medium;
    std::unique_ptr<BlockIo> io;
    PowerCutReport report;
};

class AtomicWriteTest : public SimulatedTest {
  protected:
    AtomicWriteTest() : SimulatedTest(8 * LBA) {}
};

class NoWriteCacheTest : public SimulatedTest {
  protected:
    NoWriteCacheTest() : SimulatedTest(LBA, false) {}
};

const std::string ZEROS(LBA, '\0');

} // namespace

TEST_F(SimulatedTest, OnlyAFlushMakesDurable) {
    Write(0, 'a');
    Write(LBA, 'b');
    io->Flush();
    Write(0, 'c');
    ASSERT_EQ(medium->Events(), 4u);
    bool lost = false, survived = false, garbage = false;
    for (uint64_t seed = 0; seed < 200; seed++) {
        const std::string before = ReadFrom(Cut(1, seed), 0);
        lost = lost || before == ZEROS;
        survived = survived || before == std::string(LBA, 'a');
        garbage = garbage || (before != ZEROS && before != std::string(LBA, 'a'));
        EXPECT_EQ(ReadFrom(Cut(3, seed), 0), std::string(LBA, 'a'));
        EXPECT_EQ(ReadFrom(Cut(4, seed), LBA), std::string(LBA, 'b'));
        EXPECT_EQ(ReadFrom(Cut(0, seed), 0), ZEROS);
    }
    EXPECT_TRUE(lost && survived && garbage);
    EXPECT_EQ(ReadFrom(medium, 0), std::string(LBA, 'c')) << "a cut leaves the device itself alone";
}

TEST_F(SimulatedTest, WritesSurviveInAnyOrder) {
    Write(0, 'a');
    Write(LBA, 'b');
    bool only_first = false, only_second = false;
    for (uint64_t seed = 0; seed < 100; seed++) {
        const auto cut = Cut(2, seed);
        const bool first = ReadFrom(cut, 0) == std::string(LBA, 'a');
        const bool second = ReadFrom(cut, LBA) == std::string(LBA, 'b');
        only_first = only_first || (first && !second);
        only_second = only_second || (second && !first);
    }
    EXPECT_TRUE(only_first && only_second);
}

TEST_F(SimulatedTest, AFlushSaysNothingOfCommandsInFlight) {
    const auto device = OpenSimulatedDevice(medium, ResolveTarget("simulated:test"), DeviceOptions());
    const auto queue = device->CreateQueue(2, QueueUse::OWNED);
    alignas(LBA) char data[LBA];
    std::fill(data, data + LBA, 'a');
    Command command;
    command.opcode = Opcode::WRITE;
    command.length = LBA;
    command.data = data;
    ASSERT_TRUE(queue->Submit(command));
    device->Flush();
    Command *done = nullptr;
    ASSERT_EQ(queue->Reap(&done, 1, true), 1u);
    bool lost = false;
    for (uint64_t seed = 0; seed < 50; seed++) {
        lost = lost || ReadFrom(Cut(2, seed), 0) == ZEROS;
    }
    EXPECT_TRUE(lost);
    device->Flush();
    for (uint64_t seed = 0; seed < 50; seed++) {
        EXPECT_EQ(ReadFrom(Cut(3, seed), 0), std::string(LBA, 'a'));
    }
}

TEST_F(SimulatedTest, ForceUnitAccessIsDurableOnCompletion) {
    const auto device = OpenSimulatedDevice(medium, ResolveTarget("simulated:test"), DeviceOptions());
    const auto queue = device->CreateQueue(2, QueueUse::OWNED);
    alignas(LBA) char data[LBA];
    std::fill(data, data + LBA, 'a');
    Command command;
    command.opcode = Opcode::WRITE;
    command.length = LBA;
    command.data = data;
    command.fua = true;
    ASSERT_TRUE(queue->Submit(command));
    Write(LBA, 'b'); // while the first is in flight
    Command *done = nullptr;
    ASSERT_EQ(queue->Reap(&done, 1, true), 1u);
    bool lost = false;
    for (uint64_t seed = 0; seed < 50; seed++) {
        lost = lost || ReadFrom(Cut(1, seed), 0) == ZEROS;
        EXPECT_EQ(ReadFrom(Cut(2, seed), 0), std::string(LBA, 'a'));
    }
    EXPECT_TRUE(lost) << "it was not complete yet";
}

TEST_F(SimulatedTest, TheSameSeedGivesTheSameOutcome) {
    for (int i = 0; i < 40; i++) {
        Write(i * 3 * LBA, static_cast<char>('a' + i), 3 * LBA);
    }
    bool different = false;
    for (uint64_t seed = 0; seed < 20; seed++) {
        const std::string once = ReadFrom(Cut(40, seed), 0, 120 * LBA);
        Cut(7, seed); // a cut at an earlier event in between changes nothing
        EXPECT_EQ(ReadFrom(Cut(40, seed), 0, 120 * LBA), once);
        different = different || ReadFrom(Cut(40, seed + 1), 0, 120 * LBA) != once;
    }
    EXPECT_TRUE(different);
    EXPECT_GT(report.writes_torn, 0u);
}

TEST_F(SimulatedTest, ADeviceThatLostPowerCanLoseItAgain) {
    Write(0, 'a');
    io->Flush();
    const auto second = Cut(2, 1);
    EXPECT_EQ(second->Events(), 0u);
    auto second_io = Open(second);
    second_io->Write(LBA, std::string(LBA, 'b').data(), LBA);
    second_io->Flush();
    const auto third = second->PowerCut(2, 1, report);
    EXPECT_EQ(ReadFrom(third, 0), std::string(LBA, 'a'));
    EXPECT_EQ(ReadFrom(third, LBA), std::string(LBA, 'b'));
}

TEST_F(AtomicWriteTest, AtomicWriteUnitsAreNeverTorn) {
    Write(0, 'a', 8 * LBA);
    Write(8 * LBA, 'b', 16 * LBA);
    for (uint64_t seed = 0; seed < 200; seed++) {
        const auto cut = Cut(2, seed);
        for (uint64_t unit = 0; unit < 3; unit++) {
            const std::string bytes = ReadFrom(cut, unit * 8 * LBA, 8 * LBA);
            const char content = unit == 0 ? 'a' : 'b';
            const auto kept = std::count(bytes.begin(), bytes.end(), content);
            EXPECT_TRUE(kept < 1000 || kept == 8 * LBA) << "seed " << seed << ", unit " << unit;
        }
    }
    EXPECT_GT(report.writes_torn, 0u) << "of two units, one may survive";
}

TEST_F(NoWriteCacheTest, CompletedWritesAreDurable) {
    Write(0, 'a');
    for (uint64_t seed = 0; seed < 50; seed++) {
        EXPECT_EQ(ReadFrom(Cut(1, seed), 0), std::string(LBA, 'a'));
    }
}

TEST_F(SimulatedTest, AfterThePowerCutNothingAnswers) {
    Write(0, 'a');
    medium->Inject(SimulatedFault::POWER_CUT, 2);
    Write(LBA, 'b');
    EXPECT_TRUE(medium->PowerIsOn());
    EXPECT_THROW(Write(0, 'c'), Error);
    EXPECT_THROW(io->Flush(), Error);
    char byte[LBA];
    EXPECT_EQ(medium->Read(0, byte, LBA), -ENODEV);
    EXPECT_FALSE(medium->PowerIsOn());
    EXPECT_EQ(medium->Events(), 2u);
}

TEST_F(SimulatedTest, AFailedFlushIsNotMadeGoodByTheNext) {
    Write(0, 'a');
    medium->Inject(SimulatedFault::FLUSH_ERROR, 0);
    EXPECT_THROW(io->Flush(), Error);
    io->Flush();
    bool lost = false;
    for (uint64_t seed = 0; seed < 50; seed++) {
        lost = lost || ReadFrom(Cut(3, seed), 0) == ZEROS;
    }
    EXPECT_TRUE(lost);
}

TEST_F(SimulatedTest, WritesFailOnce) {
    medium->Inject(SimulatedFault::WRITE_ERROR, 1);
    Write(0, 'a');
    EXPECT_THROW(Write(LBA, 'b'), Error);
    Write(LBA, 'c');
    EXPECT_EQ(ReadFrom(medium, LBA), std::string(LBA, 'c'));
}

TEST_F(SimulatedTest, AMisdirectedWriteSucceedsElsewhere) {
    medium->Inject(SimulatedFault::MISDIRECTED_WRITE, 0);
    Write(0, 'a');
    EXPECT_EQ(ReadFrom(medium, 0), ZEROS);
    const std::string all = ReadFrom(medium, 0, MIB);
    EXPECT_EQ(std::count(all.begin(), all.end(), 'a'), LBA);
}

TEST_F(SimulatedTest, UnreadableUntilWritten) {
    medium->Inject(SimulatedFault::READ_ERROR, 3);
    char bytes[8 * LBA];
    EXPECT_EQ(medium->Read(0, bytes, 8 * LBA), -EIO);
    EXPECT_EQ(medium->Read(0, bytes, 3 * LBA), 3 * LBA);
    EXPECT_EQ(medium->Read(4 * LBA, bytes, LBA), LBA);
    EXPECT_EQ(Cut(0, 0)->Read(3 * LBA, bytes, LBA), -EIO) << "a power cut heals nothing";
    Write(3 * LBA, 'a');
    EXPECT_EQ(medium->Read(0, bytes, 8 * LBA), 8 * LBA);
}

TEST_F(SimulatedTest, CorruptionFlipsOneBit) {
    Write(0, 'a');
    medium->Inject(SimulatedFault::CORRUPTION, 0);
    const std::string bytes = ReadFrom(medium, 0);
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 'a'), LBA - 1);
    EXPECT_THROW(medium->Inject(SimulatedFault::CORRUPTION, MIB / LBA), Error);
}

TEST(SimulatedTargetTest, NamesAndOptions) {
    SimulatedOptions options;
    options.capacity_bytes = MIB;
    CreateSimulatedTarget("named", options);
    const Target target = ResolveTarget("simulated:named");
    {
        const auto device = OpenDevice(target, DeviceOptions());
        EXPECT_EQ(device->Caps().engine, "simulated");
        EXPECT_THROW(CreateSimulatedTarget("named", options), Error) << "it is open";
    }
    CreateSimulatedTarget("named", options);
    EXPECT_THROW(OpenDevice(ResolveTarget("simulated:other"), DeviceOptions()), Error);
    EXPECT_THROW(CreateSimulatedTarget("", options), Error);
    options.lba_size = 1024;
    EXPECT_THROW(CreateSimulatedTarget("odd", options), Error);
    EXPECT_EQ(ParseSimulatedFault("flush_error"), SimulatedFault::FLUSH_ERROR);
    EXPECT_THROW(ParseSimulatedFault("gremlins"), Error);
}

} // namespace rawduck
