#include "common/error.hpp"
#include "io/block_io.hpp"
#include "io/device/device_options.hpp"
#include "io/device/memory_device.hpp"
#include "io/open_device.hpp"
#include "target/target.hpp"

#include <algorithm>
#include <cerrno>
#include <gtest/gtest.h>
#include <sys/mman.h>
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

//! Counts what is pinned; refuses when it is full.
class CountingPinner final : public MemoryPinner {
  public:
    explicit CountingPinner(const void *group) : group_(group) {}
    const void *Group() const override { return group_; }
    std::shared_ptr<void> Pin(void *memory, uint64_t bytes) override {
        if (is_full) {
            return nullptr;
        }
        pinned += bytes;
        return {memory, [this, bytes](void *) { pinned -= bytes; }};
    }

    bool is_full = false;
    uint64_t pinned = 0;

  private:
    const void *group_;
};

const char *Pinned(BlockIo &io, uint64_t offset, uint64_t length, MemoryPinner &pinner) {
    const char *pinned = io.PinnedMemory(offset, length, pinner);
    return pinned;
}

TEST_F(MemoryTest, PinnedMemoryIsWhereCommandsWrite) {
    CountingPinner pinner(this);
    auto io = OpenMemory("test");
    const std::vector<char> data(2 * MIB, 'x');
    io->Write(31 * MIB, data.data(), data.size());
    uint64_t length = data.size();
    const char *pinned = io->PinnedMemory(31 * MIB, length, pinner);
    ASSERT_NE(pinned, nullptr);
    EXPECT_EQ(length, MIB); // the rest is pinned by another call
    EXPECT_EQ(Pinned(*io, 32 * MIB, MIB, pinner), pinned + MIB);
    EXPECT_EQ(std::vector<char>(pinned, pinned + data.size()), data);
    const uint64_t once = pinner.pinned;
    EXPECT_EQ(Pinned(*io, 31 * MIB, 4096, pinner), pinned);
    EXPECT_EQ(pinner.pinned, once);
    const std::vector<char> others(4096, 'y');
    io->Write(32 * MIB, others.data(), others.size());
    EXPECT_EQ(pinned[MIB], 'y');
    // What nobody has written reads as zeros there, too.
    EXPECT_EQ(pinned[data.size() + 100], 0);
    // The same pages: those that would come in their place are not pinned.
    ASSERT_TRUE(io->Deallocate({{31 * MIB, data.size()}}));
    EXPECT_EQ(std::vector<char>(pinned, pinned + data.size()), std::vector<char>(data.size(), 0));
    unsigned char is_resident[512] = {};
    ASSERT_EQ(mincore(const_cast<char *>(pinned), data.size(), is_resident), 0);
    EXPECT_EQ(std::count(std::begin(is_resident), std::end(is_resident), 1), 512);
    io.reset();
    DropMemoryTarget("test");
    EXPECT_EQ(pinner.pinned, 0u);
}

TEST_F(MemoryTest, OneGroupPinsMemory) {
    CountingPinner first(this), second(&first), same(this);
    auto io = OpenMemory("test");
    first.is_full = true;
    EXPECT_EQ(Pinned(*io, 0, 4096, first), nullptr);
    first.is_full = false;
    EXPECT_NE(Pinned(*io, 0, 4096, first), nullptr);
    EXPECT_NE(Pinned(*io, 0, 4096, same), nullptr);
    EXPECT_EQ(same.pinned, 0u);
    EXPECT_EQ(Pinned(*io, 0, 4096, second), nullptr);
    EXPECT_EQ(Pinned(*io, 40 * MIB, 4096, second), nullptr);
    EXPECT_EQ(second.pinned, 0u);
    EXPECT_THROW(Pinned(*io, 64 * MIB, 4096, first), Error);
    io.reset();
    DropMemoryTarget("test"); // its memory uses them
}

TEST_F(MemoryTest, PinningWhileOthersWriteAndDeallocate) {
    CountingPinner pinner(this);
    auto io = OpenMemory("test");
    std::thread writer([&] {
        std::vector<char> data(64 * KIB, 'w');
        for (uint64_t i = 0; i < 2000; i++) {
            io->Write(i % 500 * 128 * KIB, data.data(), data.size());
            io->Deallocate({{i * 7 % 500 * 128 * KIB, data.size()}});
        }
        io->Write(63 * MIB, data.data(), data.size());
    });
    for (uint64_t i = 0; i < 64; i++) {
        EXPECT_NE(Pinned(*io, i * 37 % 64 * MIB, MIB, pinner), nullptr);
    }
    writer.join();
    EXPECT_EQ(Pinned(*io, 63 * MIB, 4096, pinner)[0], 'w');
    EXPECT_EQ(pinner.pinned, 64 * MIB);
    io.reset();
    DropMemoryTarget("test");
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
