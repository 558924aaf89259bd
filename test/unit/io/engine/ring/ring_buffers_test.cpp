//! Memory that rings know: used by commands, and forgotten before it is given back.
#include "common/memory/stable_memory.hpp"
#include "io/engine/io_uring.hpp"
#include "io/engine/ring/ring_buffers.hpp"
#include "support/test_support.hpp"

#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>

namespace rawduck {
namespace {

constexpr uint64_t PART = HugeMemory::HUGE_PAGE_BYTES;
//! With huge ones this engine gains nothing.
constexpr HugeMemory::Pages SMALL = HugeMemory::Pages::AS_ADVISED_LATER;
constexpr uint32_t LENGTH = 4096;
constexpr uint64_t TARGET_BYTES = 256 * LENGTH;
//! Commands after which memory is known.
constexpr int MANY = 2 * RingBuffers::USES_MIN;

class RingBuffersTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!IoUringObstacle().empty()) {
            GTEST_SKIP() << IoUringObstacle();
        }
        const int fd = open(file_.Path().c_str(), O_WRONLY);
        ASSERT_EQ(pwrite(fd, content_.data(), TARGET_BYTES, 0), static_cast<ssize_t>(TARGET_BYTES));
        close(fd);
        if (!InChild([&] {
                StableHugeMemory memory(PART, SMALL);
                return Transfer(Opcode::READ, memory.Data(), MANY) && RingBuffers::Count().obstacle.empty();
            })) {
            GTEST_SKIP() << "the system registers no memory";
        }
    }

    std::unique_ptr<Device> Open() const {
        return OpenIoUringDevice(ResolveTarget(file_.Path()), {}, "test");
    }

    //! Two commands at a time, since one alone takes no ring. Whether they moved what lies at their places.
    bool Transfer(Queue &queue, Opcode opcode, char *memory, int commands) const {
        bool good = true;
        for (int i = 0; i < commands && good; i += 2) {
            Command pair[2];
            for (Command &command : pair) {
                const uint64_t offset =
                    (static_cast<uint64_t>(i) * 7 % 255 + static_cast<uint64_t>(&command - pair)) * LENGTH;
                command.opcode = opcode;
                command.device_offset = offset;
                command.length = LENGTH;
                command.data = memory + offset;
                if (opcode == Opcode::WRITE) {
                    std::memcpy(command.data, content_.data() + offset, LENGTH);
                } else {
                    std::memset(command.data, 0, LENGTH);
                }
                good = queue.Submit(command) && good;
            }
            Command *completed[2];
            for (uint32_t count = 0; count < 2;) {
                count += queue.Reap(completed, 2, true);
            }
            for (const Command &command : pair) {
                good = good && command.result == LENGTH &&
                       std::memcmp(command.data, content_.data() + command.device_offset, LENGTH) == 0;
            }
        }
        return good;
    }
    bool Transfer(Opcode opcode, char *memory, int commands) const {
        const auto device = Open();
        return Transfer(*device->CreateQueue(8, QueueUse::OWNED), opcode, memory, commands);
    }

    TemporaryFile file_{TARGET_BYTES};
    const std::vector<char> content_ = Pattern(TARGET_BYTES, 1);
};

TEST_F(RingBuffersTest, CommandsThatComeOftenUseThem) {
    const auto device = Open();
    StableHugeMemory memory(PART, SMALL);
    for (const QueueUse use : {QueueUse::OWNED, QueueUse::SHARED}) {
        const RingBuffers::Counts before = RingBuffers::Count();
        auto queue = device->CreateQueue(8, use);
        EXPECT_TRUE(Transfer(*queue, Opcode::READ, memory.Data(), MANY));
        EXPECT_TRUE(Transfer(*queue, Opcode::WRITE, memory.Data(), MANY));
        const RingBuffers::Counts after = RingBuffers::Count();
        EXPECT_EQ(after.bytes, before.bytes + PART);
        EXPECT_EQ(after.commands, before.commands + 2 * MANY - (RingBuffers::USES_MIN - 1));
        queue.reset();
        EXPECT_EQ(RingBuffers::Count().bytes, before.bytes);
    }
}

TEST_F(RingBuffersTest, OtherMemoryIsNamedByItsAddress) {
    const uint64_t before = RingBuffers::Count().commands;
    HugeMemory memory(PART);
    EXPECT_TRUE(Transfer(Opcode::READ, memory.Data(), MANY));
    StableHugeMemory huge(PART);
    EXPECT_TRUE(Transfer(Opcode::READ, huge.Data(), MANY));
    EXPECT_EQ(RingBuffers::Count().commands, before);
}

// Memory that comes after it often has its address.
TEST_F(RingBuffersTest, WhatIsGivenBackByItsThreadIsForgotten) {
    const auto device = Open();
    const auto queue = device->CreateQueue(8, QueueUse::OWNED);
    const uint64_t before = RingBuffers::Count().bytes;
    for (int i = 0; i < 5; i++) {
        StableHugeMemory memory(PART, SMALL);
        EXPECT_TRUE(Transfer(*queue, Opcode::READ, memory.Data(), MANY));
        EXPECT_EQ(RingBuffers::Count().bytes, before + PART);
    }
    EXPECT_EQ(RingBuffers::Count().bytes, before);
}

TEST_F(RingBuffersTest, WhatAnotherThreadGivesBackIsForgottenAtOnce) {
    const auto device = Open();
    for (const QueueUse use : {QueueUse::OWNED, QueueUse::SHARED}) {
        const auto queue = device->CreateQueue(8, use);
        const uint64_t before = RingBuffers::Count().bytes;
        for (int i = 0; i < 5; i++) {
            auto memory = std::make_unique<StableHugeMemory>(PART, SMALL);
            EXPECT_TRUE(Transfer(*queue, Opcode::READ, memory->Data(), MANY));
            EXPECT_EQ(RingBuffers::Count().bytes, before + PART);
            std::thread([&] {
                memory.reset();
                EXPECT_EQ(RingBuffers::Count().bytes, before);
            }).join();
        }
    }
}

TEST_F(RingBuffersTest, WhatIsGivenBackBesideACommandIsForgottenAfterIt) {
    const auto device = Open();
    const auto queue = device->CreateQueue(8, QueueUse::OWNED);
    const uint64_t before = RingBuffers::Count().bytes;
    auto memory = std::make_unique<StableHugeMemory>(PART, SMALL);
    EXPECT_TRUE(Transfer(*queue, Opcode::READ, memory->Data(), MANY));
    HugeMemory other(PART);
    Command command, *completed = nullptr;
    command.length = LENGTH;
    command.data = other.Data();
    ASSERT_TRUE(queue->Submit(command));
    std::thread([&] { memory.reset(); }).join();
    EXPECT_EQ(RingBuffers::Count().bytes, before + PART);
    EXPECT_EQ(queue->Reap(&completed, 1, true), 1u);
    EXPECT_EQ(RingBuffers::Count().bytes, before);
    EXPECT_EQ(std::memcmp(other.Data(), content_.data(), LENGTH), 0);
}

TEST_F(RingBuffersTest, MoreMemoryThanARingKnowsWorksToo) {
    const auto device = Open();
    const auto queue = device->CreateQueue(8, QueueUse::OWNED);
    const uint64_t before = RingBuffers::Count().bytes;
    StableHugeMemory memory((RingBuffers::SLOTS + 8) * PART, SMALL);
    for (uint32_t part = 0; part < RingBuffers::SLOTS + 8; part++) {
        EXPECT_TRUE(Transfer(*queue, Opcode::READ, memory.Data() + part * PART, MANY));
    }
    const RingBuffers::Counts now = RingBuffers::Count();
    if (now.obstacle.empty()) {
        EXPECT_EQ(now.bytes, before + RingBuffers::SLOTS * PART);
    } else {
        // A busy machine may refuse to lock memory, and then no more is registered.
        EXPECT_LT(now.bytes, before + RingBuffers::SLOTS * PART) << now.obstacle;
    }
}

TEST_F(RingBuffersTest, ManyThreadsReadWhileMemoryComesAndGoes) {
    const auto device = Open();
    std::atomic<bool> good{true};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            const auto queue = device->CreateQueue(8, QueueUse::OWNED);
            for (int round = 0; round < 5; round++) {
                auto memory = std::make_unique<StableHugeMemory>(PART, SMALL);
                good = Transfer(*queue, Opcode::READ, memory->Data(), MANY) && good;
                std::thread giver([&] { memory.reset(); });
                StableHugeMemory next(PART, SMALL);
                good = Transfer(*queue, Opcode::READ, next.Data(), MANY) && good;
                giver.join();
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_TRUE(good);
}

TEST_F(RingBuffersTest, WithoutLockedMemoryCommandsHaveAddresses) {
    ASSERT_EQ(chmod(file_.Path().c_str(), 0666), 0);
    EXPECT_TRUE(InChild([&] {
        const auto device = Open(); // which this user may not, in a directory of others
        const rlimit few = {64 * KIB, 64 * KIB};
        if (setrlimit(RLIMIT_MEMLOCK, &few) != 0 || setuid(65534) != 0) {
            return false;
        }
        const auto queue = device->CreateQueue(8, QueueUse::OWNED);
        StableHugeMemory memory(PART, SMALL);
        return Transfer(*queue, Opcode::READ, memory.Data(), MANY) && RingBuffers::Count().bytes == 0 &&
               RingBuffers::Count().obstacle.find("ulimit -l") != std::string::npos;
    }));
}

TEST_F(RingBuffersTest, AChildBeginsAnew) {
    StableHugeMemory memory(PART, SMALL);
    const auto device = Open();
    const auto queue = device->CreateQueue(8, QueueUse::OWNED);
    EXPECT_TRUE(Transfer(*queue, Opcode::READ, memory.Data(), MANY));
    EXPECT_TRUE(InChild([&] {
        const uint64_t commands = RingBuffers::Count().commands;
        // The parent's memory is not listed here, the child's is.
        bool good = Transfer(Opcode::READ, memory.Data(), MANY) && RingBuffers::Count().commands == commands;
        StableHugeMemory own(PART, SMALL);
        return good && Transfer(Opcode::READ, own.Data(), MANY) && RingBuffers::Count().commands > commands;
    }));
    EXPECT_TRUE(Transfer(*queue, Opcode::READ, memory.Data(), MANY));
}

} // namespace
} // namespace rawduck
