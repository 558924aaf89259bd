//! Every queue strategy: right under 64 threads, and as many queues and commands in flight as it promises.
#include "io/block_io.hpp"
#include "io/open_device.hpp"
#include "support/fake_device.hpp"
#include "support/test_support.hpp"
#include "support/xnvme_support.hpp"

#include <atomic>
#include <thread>

namespace rawduck {
namespace {

constexpr int THREADS = 64;

BlockIoOptions OptionsOf(const std::string &mode) {
    BlockIoOptions options;
    options.queue_mode = ParseQueueMode(mode);
    return options;
}

std::unique_ptr<BlockIo> OpenFake(FakeState &state, const std::string &mode) {
    return std::make_unique<BlockIo>(std::make_unique<FakeDevice>(state), OptionsOf(mode), "fake0",
                                     std::make_shared<IoStats>());
}

void RunThreads(int count, const std::function<void(int)> &body) {
    std::vector<std::thread> threads;
    for (int t = 0; t < count; t++) {
        threads.emplace_back([&body, t] { body(t); });
    }
    for (auto &thread : threads) {
        thread.join();
    }
}

class QueueModes : public ::testing::TestWithParam<const char *> {
  protected:
    const std::string mode_ = GetParam();
};

TEST_P(QueueModes, ParsesAndIsNamed) {
    EXPECT_EQ(QueueModeName(ParseQueueMode(mode_)), mode_);
}

//! Each thread has a region of its own, writes it in requests of several commands and reads it back; the fake
//! device completes out of order and is not thread-safe within one queue.
TEST_P(QueueModes, RequestsOf64ThreadsNeverMix) {
    constexpr uint64_t REGION = 64 * KIB;
    FakeState state(THREADS * REGION);
    auto io = OpenFake(state, mode_);
    std::atomic<int> wrong{0};
    RunThreads(THREADS, [&](int t) {
        for (uint32_t round = 0; round < 5; round++) {
            const auto data = Pattern(REGION, static_cast<uint32_t>(t) * 100 + round);
            std::vector<char> back(REGION);
            io->Write(static_cast<uint64_t>(t) * REGION, data.data(), REGION);
            io->Read(static_cast<uint64_t>(t) * REGION, back.data(), REGION);
            wrong += back != data ? 1 : 0;
        }
    });
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(state.in_flight, 0);
}

TEST_P(QueueModes, RealEnginesUnder64Threads) {
    constexpr uint64_t REGION = 128 * KIB;
    std::vector<std::string> engines = XnvmeEnginesOnFiles();
    engines.insert(engines.end(), {"auto", "posix"});
    for (const std::string &engine : engines) {
        TemporaryFile file(THREADS * REGION);
        const Target target = ResolveTarget(file.Path());
        DeviceOptions options;
        options.engine = engine;
        options.max_transfer_bytes = 16 * KIB;
        BlockIo io(OpenDevice(target, options), OptionsOf(mode_), target.name, std::make_shared<IoStats>());
        std::atomic<int> wrong{0};
        RunThreads(THREADS, [&](int t) {
            const auto data = Pattern(REGION, static_cast<uint32_t>(t));
            std::vector<char> back(REGION);
            io.Write(static_cast<uint64_t>(t) * REGION, data.data(), REGION);
            for (int round = 0; round < 3; round++) {
                io.Read(static_cast<uint64_t>(t) * REGION, back.data(), REGION);
                wrong += back != data ? 1 : 0;
            }
        });
        EXPECT_EQ(wrong, 0) << engine;
    }
}

TEST_P(QueueModes, AFailedCommandLeavesTheOtherThreadsAlone) {
    FakeState state(1 * MIB);
    state.result = [](const Command &command, uint64_t) -> int64_t {
        return command.device_offset < 64 * KIB ? int64_t(-EIO) : command.length;
    };
    auto io = OpenFake(state, mode_);
    std::atomic<int> failed{0};
    RunThreads(16, [&](int t) {
        std::vector<char> data(16 * KIB);
        for (int round = 0; round < 20; round++) {
            try {
                io->Read(static_cast<uint64_t>(t) * 64 * KIB, data.data(), data.size());
            } catch (const Error &error) {
                EXPECT_EQ(error.Code(), ErrorCode::IO);
                failed++;
            }
        }
    });
    EXPECT_EQ(failed, 20);
}

TEST_P(QueueModes, ABrokenQueueIsReplaced) {
    FakeState state(1 * MIB);
    std::atomic<bool> breaks{true};
    state.on_submit = [&](const Command &) {
        if (breaks.exchange(false)) {
            throw Error(ErrorCode::IO, "the queue broke");
        }
    };
    auto io = OpenFake(state, mode_);
    std::vector<char> data(4096);
    EXPECT_EQ(CatchError([&] { io->Read(0, data.data(), data.size()); }).what(),
              std::string("the queue broke"));
    EXPECT_EQ(state.queues_alive, 0);
    io->Read(0, data.data(), data.size());
    EXPECT_EQ(state.queues_made, 2);
}

TEST_P(QueueModes, AForkedChildIsRefused) {
    FakeState state(1 * MIB);
    auto io = OpenFake(state, mode_);
    std::vector<char> data(4096);
    io->Read(0, data.data(), data.size());
    EXPECT_TRUE(InChild([&] {
        try {
            io->Read(0, data.data(), data.size());
        } catch (const Error &error) {
            io.reset();
            return error.Code() == ErrorCode::UNSUPPORTED;
        }
        return false;
    }));
}

INSTANTIATE_TEST_SUITE_P(All, QueueModes, ::testing::Values("sync", "single", "pool", "thread"),
                         [](const auto &info) { return std::string(info.param); });

TEST(QueueMode, AnUnknownOneListsTheKnown) {
    const Error error = CatchError([] { ParseQueueMode("mob"); });
    EXPECT_NE(std::string(error.what()).find("sync, single, pool, thread"), std::string::npos)
        << error.what();
}

TEST(QueueMode, SyncHasOneCommandInFlightPerThread) {
    FakeState state(1 * MIB);
    auto io = OpenFake(state, "sync");
    std::vector<char> data(64 * KIB);
    io->Read(0, data.data(), data.size());
    EXPECT_EQ(state.max_in_flight, 1u);
    EXPECT_EQ(state.completed, 16u);
}

TEST(QueueMode, SingleMakesOneQueueForAllThreads) {
    FakeState state(1 * MIB);
    auto io = OpenFake(state, "single");
    RunThreads(16, [&](int) {
        std::vector<char> data(64 * KIB);
        io->Read(0, data.data(), data.size());
    });
    EXPECT_EQ(state.queues_made, 1);
    EXPECT_EQ(state.max_in_flight, 8u) << "one request still keeps the queue full";
}

TEST(QueueMode, PoolUsesAllItsQueuesAndNoMore) {
    FakeState state(1 * MIB);
    auto io = OpenFake(state, "pool");
    // One after the other, so that the first queue is always free: only a bias could leave the others unused.
    for (int t = 0; t < THREADS; t++) {
        std::thread([&] {
            std::vector<char> data(4096);
            io->Read(0, data.data(), data.size());
        }).join();
    }
    const auto expected = std::clamp<int>(static_cast<int>(std::thread::hardware_concurrency()), 2, 16);
    EXPECT_EQ(state.queues_made, expected);
    EXPECT_EQ(state.queues_alive, expected) << "shared queues outlive the threads that made them";
    io.reset();
    EXPECT_EQ(state.queues_alive, 0);
}

} // namespace
} // namespace rawduck
