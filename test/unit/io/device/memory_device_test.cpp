#include "common/error.hpp"
#include "io/block_io.hpp"
#include "io/device/device_options.hpp"
#include "io/device/memory_device.hpp"
#include "io/open_device.hpp"
#include "target/target.hpp"

#include <cerrno>
#include <gtest/gtest.h>
#include <thread>

namespace rawduck {
namespace {

std::unique_ptr<BlockIo> OpenMemory(const std::string &name, BlockIoOptions options = {}) {
    Target target = ResolveTarget("memory:" + name);
    return std::make_unique<BlockIo>(OpenDevice(target, {}), options, target.name,
                                     std::make_shared<IoStats>());
}

class MemoryTest : public ::testing::Test {
  protected:
    void SetUp() override {
        MemoryTargetOptions options;
        options.capacity_bytes = 64 * MIB;
        options.memory_alignment = 512;
        CreateMemoryTarget("test", options);
    }
    void TearDown() override { DropMemoryTarget("test"); }
};

int64_t RunOne(Device &device, Command command) {
    auto queue = device.CreateQueue(4, QueueUse::OWNED);
    EXPECT_TRUE(queue->Submit(command));
    Command *done = nullptr;
    EXPECT_EQ(queue->Reap(&done, 1, true), 1u);
    EXPECT_EQ(done, &command);
    return done->result;
}

TEST_F(MemoryTest, ReadsZerosThenWhatWasWritten) {
    auto io = OpenMemory("test");
    std::vector<char> data(3 * MIB + 4096, 'x'), back(data.size(), 'y');
    io->Read(MIB - 4096, back.data(), back.size());
    EXPECT_EQ(back, std::vector<char>(data.size(), 0));
    io->Write(MIB - 4096, data.data(), data.size());
    io->Read(MIB - 4096, back.data(), back.size());
    EXPECT_EQ(back, data);
    char after[4096];
    io->Read(4 * MIB, after, sizeof after);
    EXPECT_EQ(after[0], 0);
}

TEST_F(MemoryTest, RefusesWhatAStrictDeviceRefuses) {
    auto device = OpenDevice(ResolveTarget("memory:test"), {});
    alignas(4096) static char buffer[MIB];
    Command command;
    command.data = buffer;
    command.length = 4096;
    EXPECT_EQ(RunOne(*device, command), 4096);
    Command wrong = command;
    wrong.data = buffer + 256;
    EXPECT_EQ(RunOne(*device, wrong), -EINVAL);
    wrong = command;
    wrong.length = 512;
    EXPECT_EQ(RunOne(*device, wrong), -EINVAL);
    wrong = command;
    wrong.device_offset = 512;
    EXPECT_EQ(RunOne(*device, wrong), -EINVAL);
    wrong = command;
    wrong.length = 512 * KIB;
    EXPECT_EQ(RunOne(*device, wrong), -EINVAL);
    wrong = command;
    wrong.device_offset = 64 * MIB;
    EXPECT_EQ(RunOne(*device, wrong), -EINVAL);
}

TEST_F(MemoryTest, LivesOnInOpenDevicesAfterItIsDropped) {
    auto io = OpenMemory("test");
    std::vector<char> data(4096, 'x'), back(4096);
    io->Write(0, data.data(), data.size());
    DropMemoryTarget("test");
    EXPECT_FALSE(MemoryTargetExists("test"));
    io->Read(0, back.data(), back.size());
    EXPECT_EQ(back, data);
    EXPECT_THROW(OpenMemory("test"), Error);
}

TEST_F(MemoryTest, IsSharedByAllWhoOpenIt) {
    std::vector<char> data(4096, 'x'), back(4096);
    OpenMemory("test")->Write(8192, data.data(), data.size());
    OpenMemory("test")->Read(8192, back.data(), back.size());
    EXPECT_EQ(back, data);
}

TEST_F(MemoryTest, RefusesASecondOfTheSameNameAndImpossibleOnes) {
    MemoryTargetOptions options;
    options.capacity_bytes = MIB;
    try {
        CreateMemoryTarget("test", options);
        FAIL();
    } catch (const Error &error) {
        EXPECT_EQ(error.Code(), ErrorCode::EXISTS);
    }
    options.capacity_bytes = 0;
    EXPECT_THROW(CreateMemoryTarget("other", options), Error);
    options.capacity_bytes = MIB;
    options.memory_alignment = 3;
    EXPECT_THROW(CreateMemoryTarget("other", options), Error);
    EXPECT_FALSE(MemoryTargetExists("other"));
}

TEST_F(MemoryTest, DeallocatedRangesReadAsZeros) {
    auto io = OpenMemory("test");
    std::vector<char> data(2 * MIB, 'x'), back(2 * MIB);
    io->Write(0, data.data(), data.size());
    EXPECT_TRUE(io->Deallocate({{4096, MIB + 8192}}));
    io->Read(0, back.data(), back.size());
    std::fill_n(data.begin() + 4096, MIB + 8192, 0);
    EXPECT_EQ(back, data);
}

TEST_F(MemoryTest, ReadOnlyRefusesWrites) {
    DeviceOptions options;
    options.read_only = true;
    Target target = ResolveTarget("memory:test");
    BlockIo io(OpenDevice(target, options), {}, target.name, std::make_shared<IoStats>());
    std::vector<char> data(4096);
    io.Read(0, data.data(), data.size());
    try {
        io.Write(0, data.data(), data.size());
        FAIL();
    } catch (const Error &error) {
        EXPECT_EQ(error.Code(), ErrorCode::READ_ONLY);
    }
}

TEST_F(MemoryTest, ThreadsWriteNeighbouringRanges) {
    auto io = OpenMemory("test");
    std::vector<std::thread> threads;
    for (int t = 0; t < 16; t++) {
        threads.emplace_back([&, t] {
            std::vector<char> data(64 * KIB, static_cast<char>('a' + t)), back(data.size());
            for (uint64_t round = 0; round < 32; round++) {
                uint64_t offset = (round * 16 + static_cast<uint64_t>(t)) * data.size();
                io->Write(offset, data.data(), data.size());
                io->Read(offset, back.data(), back.size());
                EXPECT_EQ(back, data);
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
}

} // namespace
} // namespace rawduck
