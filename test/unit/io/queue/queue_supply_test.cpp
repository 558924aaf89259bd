//! What becomes of threads for which no queue can be made: they share some, or run their commands themselves.
#include "io/queue/queue_supply.hpp"

#include "io/block_io.hpp"
#include "io/device/device_options.hpp"
#include "io/open_device.hpp"
#include "support/fake_device.hpp"
#include "support/test_support.hpp"
#include "target/target.hpp"

#include <atomic>
#include <condition_variable>
#include <fcntl.h>
#include <sys/resource.h>
#include <thread>

namespace rawduck {
namespace {

//! Has room for so many queues besides synchronous ones.
class CrampedDevice final : public FakeDevice {
  public:
    CrampedDevice(FakeState &state, std::atomic<int> &room) : FakeDevice(state), room_(room) {}

    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse use) override {
        if (room_.fetch_sub(1) <= 0) {
            room_.fetch_add(1);
            throw Error(ErrorCode::IO, "no room for a queue");
        }
        return FakeDevice::CreateQueue(depth, use);
    }
    std::unique_ptr<Queue> CreateSynchronousQueue() override {
        return FakeDevice::CreateQueue(1, QueueUse::SHARED);
    }

  private:
    std::atomic<int> &room_;
};

std::unique_ptr<BlockIo> Open(std::unique_ptr<Device> device, const std::string &mode = "thread") {
    BlockIoOptions options;
    options.queue_mode = ParseQueueMode(mode);
    return std::make_unique<BlockIo>(std::move(device), options, "fake0", std::make_shared<IoStats>());
}

//! Threads that are all alive before the first of them ends.
template <typename Body> void RunTogether(int count, const Body &body) {
    std::mutex mutex;
    std::condition_variable all_done;
    int done = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < count; t++) {
        threads.emplace_back([&, t] {
            body(t);
            std::unique_lock<std::mutex> lock(mutex);
            done++;
            all_done.notify_all();
            all_done.wait(lock, [&] { return done == count; });
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
}

//! Each of 64 threads writes a region of its own and reads it back.
int WrongRegionsOf64Threads(BlockIo &io) {
    constexpr uint64_t REGION = 16 * KIB;
    std::atomic<int> wrong{0};
    RunTogether(64, [&](int t) {
        try {
            for (uint32_t round = 0; round < 4; round++) {
                const auto data = Pattern(REGION, static_cast<uint32_t>(t) * 100 + round);
                std::vector<char> back(REGION);
                io.Write(static_cast<uint64_t>(t) * REGION, data.data(), REGION);
                io.Read(static_cast<uint64_t>(t) * REGION, back.data(), REGION);
                wrong += back != data ? 1 : 0;
            }
        } catch (const Error &error) {
            ADD_FAILURE() << error.what();
            wrong++;
        }
    });
    return wrong;
}

class QueueShortage : public ::testing::TestWithParam<const char *> {};

TEST_P(QueueShortage, WithoutAnyQueueCommandsRunOnTheirThreads) {
    FakeState state(1 * MIB);
    std::atomic<int> room{0};
    auto io = Open(std::make_unique<CrampedDevice>(state, room), GetParam());
    EXPECT_EQ(io->EngineReason(), state.caps.engine_reason);
    EXPECT_EQ(WrongRegionsOf64Threads(*io), 0);
    EXPECT_EQ(state.max_in_flight, 1u);
    EXPECT_NE(io->EngineReason().find("no room for a queue"), std::string::npos) << io->EngineReason();
}

TEST_P(QueueShortage, AFewQueuesServeAllThreads) {
    FakeState state(1 * MIB);
    std::atomic<int> room{3};
    auto io = Open(std::make_unique<CrampedDevice>(state, room), GetParam());
    EXPECT_EQ(WrongRegionsOf64Threads(*io), 0);
}

INSTANTIATE_TEST_SUITE_P(All, QueueShortage, ::testing::Values("sync", "single", "pool", "thread"),
                         [](const auto &info) { return std::string(info.param); });

TEST(QueueSupply, WhatWasInTheWayMayPass) {
    FakeState state(1 * MIB);
    std::atomic<int> room{0};
    auto io = Open(std::make_unique<CrampedDevice>(state, room));
    std::vector<char> data(64 * KIB);
    io->Read(0, data.data(), data.size());
    EXPECT_EQ(state.max_in_flight, 1u);
    room = 2;
    for (int i = 0; i < QueueSupply::PAUSE_REQUESTS; i++) {
        io->Read(0, data.data(), 512);
    }
    io->Read(0, data.data(), data.size());
    EXPECT_EQ(state.max_in_flight, 8u) << "a queue can be made again, and is not asked for";
}

TEST(QueueSupply, ABrokenQueueThatThreadsShareIsReplaced) {
    FakeState state(1 * MIB);
    std::atomic<int> room{0};
    auto io = Open(std::make_unique<CrampedDevice>(state, room));
    std::atomic<bool> breaks{true};
    state.on_submit = [&](const Command &) {
        if (breaks.exchange(false)) {
            throw Error(ErrorCode::IO, "the queue broke");
        }
    };
    std::vector<char> data(4096);
    EXPECT_STREQ(CatchError([&] { io->Read(0, data.data(), data.size()); }).what(), "the queue broke");
    io->Read(0, data.data(), data.size());
}

TEST(QueueSupply, ManyThreadsGetNoMoreScarceQueuesThanATargetMayHave) {
    FakeState state(1 * MIB);
    state.caps.scarce_queues = true;
    auto io = Open(std::make_unique<FakeDevice>(state));
    int alive = 0;
    std::mutex mutex;
    RunTogether(200, [&](int) {
        std::vector<char> data(4096);
        io->Read(0, data.data(), data.size());
        std::lock_guard<std::mutex> guard(state.mutex);
        std::lock_guard<std::mutex> also(mutex);
        alive = std::max(alive, state.queues_alive);
    });
    EXPECT_LE(alive, QueueReservation::OWNED_MAX + 16);
    EXPECT_NE(io->EngineReason().find("ulimit -n"), std::string::npos) << io->EngineReason();
}

TEST(QueueSupply, AProcessWithFewDescriptorsKeepsMostOfThem) {
    EXPECT_TRUE(InChild([] {
        const rlimit few = {60, 60};
        setrlimit(RLIMIT_NOFILE, &few);
        FakeState one(1 * MIB), two(1 * MIB);
        one.caps.scarce_queues = two.caps.scarce_queues = true;
        std::atomic<int> room_of_one{1000}, room_of_two{1000};
        auto first = Open(std::make_unique<CrampedDevice>(one, room_of_one));
        auto second = Open(std::make_unique<CrampedDevice>(two, room_of_two));
        RunTogether(64, [&](int) {
            std::vector<char> data(4096);
            first->Read(0, data.data(), data.size());
            second->Read(0, data.data(), data.size());
        });
        const int made = 2000 - room_of_one - room_of_two;
        EXPECT_LE(made, 15);
        EXPECT_GT(made, 0);
        return !testing::Test::HasFailure();
    }));
}

TEST(QueueSupply, AVolumeGoesOnWhenNoDescriptorIsLeft) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer needs file descriptors of its own for its checks";
#endif
    EXPECT_TRUE(InChild([] {
        TemporaryFile file(1 * MIB);
        const Target target = ResolveTarget(file.Path());
        for (const std::string mode : {"thread", "pool", "single", "sync"}) {
            auto io = Open(OpenDevice(target, DeviceOptions()), mode);
            if (io->Caps().engine != "io_uring") {
                return true; // this kernel has no rings to run out of
            }
            std::vector<int> taken;
            const rlimit few = {60, 1024};
            setrlimit(RLIMIT_NOFILE, &few);
            for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY)) {
                taken.push_back(fd);
            }
            EXPECT_EQ(WrongRegionsOf64Threads(*io), 0);
            EXPECT_NE(io->EngineReason().find("no file descriptor for a ring"), std::string::npos)
                << io->EngineReason();
            for (const int fd : taken) {
                close(fd);
            }
        }
        return !testing::Test::HasFailure();
    }));
}

} // namespace
} // namespace rawduck
