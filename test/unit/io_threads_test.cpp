//! Lifetimes of thread-owned queues: threads that end before or after the device, many of them, and fork.
#include "io/block_io.hpp"
#include "io/bounce_pool.hpp"
#include "io_fake_device.hpp"
#include "io_test_support.hpp"

#include <atomic>
#include <future>
#include <thread>

namespace rawduck {
namespace {

std::unique_ptr<BlockIo> Open(FakeState &state) {
    return std::make_unique<BlockIo>(std::make_unique<FakeDevice>(state), BlockIoOptions(), "fake0",
                                     std::make_shared<IoStats>());
}

TEST(ThreadQueues, EachThreadMakesOneAtItsFirstUseAndKeepsIt) {
    FakeState state(1 * MIB);
    auto io = Open(state);
    EXPECT_EQ(state.queues_made, 0);
    std::vector<char> data(4096);
    io->Read(0, data.data(), data.size());
    io->Read(0, data.data(), data.size());
    EXPECT_EQ(state.queues_made, 1);
    std::thread([&] {
        std::vector<char> mine(4096);
        io->Read(0, mine.data(), mine.size());
        EXPECT_EQ(state.queues_alive, 2);
    }).join();
    EXPECT_EQ(state.queues_made, 2);
    EXPECT_EQ(state.queues_alive, 1) << "the queue of a thread that has ended must be gone";
}

TEST(ThreadQueues, ADeviceMayGoBeforeItsThreads) {
    FakeState state(1 * MIB);
    auto io = Open(state);
    std::promise<void> used, closed;
    std::thread thread([&] {
        std::vector<char> mine(4096);
        io->Read(0, mine.data(), mine.size());
        used.set_value();
        closed.get_future().wait();
        FakeState other(1 * MIB);
        auto second = Open(other);
        second->Read(0, mine.data(), mine.size());
        EXPECT_EQ(other.queues_alive, 1);
    });
    used.get_future().wait();
    io.reset();
    EXPECT_EQ(state.queues_alive, 0);
    closed.set_value();
    thread.join();
    EXPECT_EQ(state.queues_made, 1);
}

TEST(ThreadQueues, OneThreadServesManyDevicesAndNeverMixesThemUp) {
    for (int round = 0; round < 20; round++) {
        FakeState one(64 * KIB), two(64 * KIB);
        one.bytes.assign(64 * KIB, '1');
        two.bytes.assign(64 * KIB, '2');
        auto first = Open(one), second = Open(two);
        char data[4096];
        first->Read(0, data, sizeof data);
        EXPECT_EQ(data[0], '1');
        second->Read(0, data, sizeof data);
        EXPECT_EQ(data[0], '2');
    }
}

TEST(ThreadQueues, ThreadsEndWhileTheDeviceCloses) {
    for (int round = 0; round < 30; round++) {
        FakeState state(1 * MIB);
        auto io = Open(state);
        std::atomic<int> done{0};
        std::vector<std::thread> threads;
        for (int t = 0; t < 8; t++) {
            threads.emplace_back([&] {
                std::vector<char> mine(4096);
                io->Read(0, mine.data(), mine.size());
                done++;
            });
        }
        while (done < 8) {
            std::this_thread::yield();
        }
        io.reset(); // while the threads are on their way out
        EXPECT_EQ(state.queues_alive, 0);
        for (auto &thread : threads) {
            thread.join();
        }
    }
}

TEST(ThreadQueues, AForkedChildIsRefusedAndTheParentGoesOn) {
    FakeState state(1 * MIB);
    auto io = Open(state);
    std::vector<char> data(4096);
    io->Read(0, data.data(), data.size());
    EXPECT_TRUE(InChild([&] {
        auto refused = [&](const std::function<void()> &action) {
            try {
                action();
            } catch (const Error &error) {
                return error.Code() == ErrorCode::UNSUPPORTED &&
                       std::string(error.what()).find("before fork()") != std::string::npos;
            }
            return false;
        };
        bool good = refused([&] { io->Read(0, data.data(), data.size()); }) &&
                    refused([&] { io->Write(0, data.data(), data.size()); }) &&
                    refused([&] { io->Flush(); }) && refused([&] { io->Deallocate({{0, 4096}}); });
        // The child may open a device of its own, with the same thread-local cache.
        FakeState own(1 * MIB);
        auto fresh = Open(own);
        fresh->Read(0, data.data(), data.size());
        good = good && own.queues_made == 1;
        fresh.reset();
        io.reset();
        return good && state.queues_alive == 1;
    }));
    io->Read(0, data.data(), data.size());
    EXPECT_EQ(state.queues_made, 1);
}

TEST(BouncePool, GrowsLazilyWithinItsBudgetAndGivesItBack) {
    BounceBudget budget(3 * 4096);
    {
        BouncePool first(4096, 512, 8, budget), second(4096, 512, 8, budget);
        std::vector<char *> chunks;
        while (char *chunk = first.Acquire()) {
            EXPECT_TRUE(IsAligned(reinterpret_cast<uintptr_t>(chunk), 4096));
            chunks.push_back(chunk);
        }
        EXPECT_EQ(chunks.size(), 4u) << "three from the budget and one on top";
        char *only = second.Acquire();
        EXPECT_NE(only, nullptr) << "every pool can have at least one";
        EXPECT_EQ(second.Acquire(), nullptr);
        second.Release(only);
        EXPECT_EQ(second.Acquire(), only);
        EXPECT_EQ(budget.Held(), 5u * 4096);
    }
    EXPECT_EQ(budget.Held(), 0u);
    BouncePool third(4096, 512, 3, budget);
    EXPECT_NE(third.Acquire(), nullptr);
    EXPECT_NE(third.Acquire(), nullptr);
    EXPECT_NE(third.Acquire(), nullptr);
    EXPECT_EQ(third.Acquire(), nullptr) << "never more than its own limit";
}

} // namespace
} // namespace rawduck
