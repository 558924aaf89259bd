//! Lifetimes of thread-owned queues: threads that end before or after the device, many of them, and fork.
#include "io/block_io.hpp"
#include "io/queue/bounce_pool.hpp"
#include "support/emulation.hpp"
#include "support/fake_device.hpp"
#include "support/test_support.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
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

//! Reads when it is destroyed: a thread_local that was there before the thread's queues goes after them.
struct ReadsAtTheEnd {
    BlockIo *io = nullptr;
    FakeState *state = nullptr;
    ~ReadsAtTheEnd() {
        if (!io) {
            return;
        }
        char data[4096];
        EXPECT_EQ(state->queues_alive, 0) << "the thread's own queue is gone already";
        for (int i = 0; i < 3; i++) {
            io->Read(0, data, sizeof data);
            EXPECT_EQ(data[0], '7');
        }
    }
};

TEST(ThreadQueues, AThreadThatIsEndingStillReads) {
    FakeState state(64 * KIB);
    state.bytes.assign(64 * KIB, '7');
    auto io = Open(state);
    for (int round = 1; round <= 2; round++) {
        std::thread([&] {
            thread_local ReadsAtTheEnd last;
            last.io = io.get();
            last.state = &state;
            char data[4096];
            io->Read(0, data, sizeof data);
        }).join();
        EXPECT_EQ(state.queues_made, round * 2) << "one while it ran, and one for all three reads at its end";
        io = Open(state);
    }
    io.reset();
    EXPECT_EQ(state.queues_alive, 0);
}

//! What static destructors and exit handlers do, in a process of its own.
[[noreturn]] void ReadInAnExitHandler() {
    static FakeState &state = *new FakeState(64 * KIB);
    static BlockIo &io = *Open(state).release();
    state.bytes.assign(64 * KIB, '7');
    char data[4096];
    io.Read(0, data, sizeof data);
    // Registered last, run first, but after the thread_locals of the main thread.
    std::atexit([] {
        char late[4096] = {};
        io.Read(0, late, sizeof late);
        fprintf(stderr, "read %c with %d queues", late[0], static_cast<int>(state.queues_made));
    });
    std::exit(0);
}

TEST(ThreadQueuesDeathTest, AnExitHandlerStillReads) {
    if (!CanStartItself()) {
        GTEST_SKIP() << "an emulator does not start other programs of this architecture";
    }
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(ReadInAnExitHandler(), testing::ExitedWithCode(0), "read 7 with 2 queues");
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

TEST(BouncePool, GrowsLazilyWithinItsLimitAndGivesItBack) {
    BounceMemory memory(3 * 4096);
    {
        BouncePool first(4096, 512, 8, memory), second(4096, 512, 8, memory);
        EXPECT_EQ(memory.Held(), 0u);
        std::vector<char *> chunks;
        while (char *chunk = first.Acquire()) {
            EXPECT_TRUE(IsAligned(reinterpret_cast<uintptr_t>(chunk), 4096));
            chunks.push_back(chunk);
        }
        EXPECT_EQ(chunks.size(), 4u) << "three that all pools share and one on top";
        char *only = second.Acquire();
        EXPECT_NE(only, nullptr) << "every pool can have at least one";
        EXPECT_EQ(second.Acquire(), nullptr);
        second.Release(only);
        EXPECT_EQ(second.Acquire(), only);
        chunks.push_back(only);
        std::sort(chunks.begin(), chunks.end());
        for (size_t i = 1; i < chunks.size(); i++) {
            EXPECT_GE(chunks[i] - chunks[i - 1], 4096) << "they overlap";
        }
        EXPECT_EQ(memory.Held(), 5 * 4096u);
        EXPECT_LT(chunks.back() - chunks.front(), int64_t(HugeMemory::HUGE_PAGE_BYTES))
            << "all in one huge page";
        for (char *chunk : chunks) {
            (chunk == only ? second : first).Release(chunk);
        }
    }
    EXPECT_EQ(memory.Held(), 0u);
    BouncePool third(4096, 512, 3, memory);
    char *chunks[3] = {third.Acquire(), third.Acquire(), third.Acquire()};
    EXPECT_EQ(std::count(chunks, chunks + 3, nullptr), 0);
    EXPECT_EQ(third.Acquire(), nullptr) << "never more than its own limit";
    for (char *chunk : chunks) {
        third.Release(chunk);
    }
}

TEST(BouncePoolDeathTest, AChunkIsReleasedOnceAndBeforeItsPoolGoes) {
    const auto twice = [] { // all in the child: what was made before a fork is the parent's
        BounceMemory memory(3 * 4096);
        BouncePool pool(4096, 512, 8, memory);
        char *chunk = pool.Acquire();
        pool.Release(chunk);
        pool.Release(chunk);
    };
    const auto never = [] {
        BounceMemory memory(3 * 4096);
        BouncePool pool(4096, 512, 8, memory);
        static_cast<void>(pool.Acquire());
    };
    EXPECT_DEATH(twice(), "invariant broken: a chunk is released once");
    EXPECT_DEATH(never(), "invariant broken: nothing is in flight when a queue is destroyed");
}

TEST(BouncePool, TakesMoreHugePagesAsItGrows) {
    BounceMemory memory(12 * MIB);
    BouncePool pool(256 * KIB, 4096, 20, memory);
    std::vector<char *> chunks;
    while (char *chunk = pool.Acquire()) {
        std::fill_n(chunk, 256 * KIB, 'x');
        chunks.push_back(chunk);
    }
    EXPECT_EQ(chunks.size(), 20u);
    EXPECT_EQ(memory.Held(), 20 * 256 * KIB);
    EXPECT_EQ(BounceChunks::HeldBytes(), 3 * HugeMemory::HUGE_PAGE_BYTES);
    for (char *chunk : chunks) {
        pool.Release(chunk);
    }
}

TEST(BounceChunks, ManyTargetsShareFewSlabsAndTheLastGivesAllBack) {
    const auto device = [] { return std::make_unique<BounceMemory>(12 * MIB); };
    std::vector<std::unique_ptr<BounceMemory>> memories;
    std::vector<char *> chunks;
    for (int i = 0; i < 48; i++) {
        memories.push_back(device());
        chunks.push_back(memories.back()->Take(256 * KIB, true));
        std::fill_n(chunks.back(), 256 * KIB, static_cast<char>(i));
    }
    EXPECT_EQ(BounceChunks::HeldBytes(), 12 * MIB) << "eight targets to a slab";
    for (int i = 0; i < 48; i++) {
        EXPECT_EQ(std::count(chunks[i], chunks[i] + 256 * KIB, static_cast<char>(i)), int64_t(256 * KIB));
        memories[i]->Give(chunks[i], 256 * KIB, true);
    }
    EXPECT_EQ(BounceChunks::HeldBytes(), BounceChunks::KEPT_BYTES_MAX);
    char *const again = memories[0]->Take(256 * KIB, true);
    EXPECT_EQ(std::count(chunks.begin(), chunks.end(), again), 1) << "what was given back is used again";
    char *const small = memories[1]->Take(4 * KIB, true);
    EXPECT_EQ(BounceChunks::HeldBytes(), BounceChunks::KEPT_BYTES_MAX + BounceChunks::SLAB_BYTES)
        << "a slab has chunks of one size";
    memories[0]->Give(again, 256 * KIB, true);
    memories[1]->Give(small, 4 * KIB, true);
    EXPECT_EQ(BounceChunks::HeldBytes(), BounceChunks::KEPT_BYTES_MAX);
    memories.clear();
    EXPECT_EQ(BounceChunks::HeldBytes(), 0u);
}

//! The flags of the mapping that an address lies in, as proc(5) has them in smaps.
std::string MappingFlags(const char *address) {
    std::ifstream maps("/proc/self/smaps");
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    bool found = false;
    for (std::string line; std::getline(maps, line);) {
        unsigned long begin = 0, end = 0;
        if (sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2) {
            found = begin <= wanted && wanted < end;
        } else if (found && line.rfind("VmFlags:", 0) == 0) {
            return line + " ";
        }
    }
    return "";
}

TEST(HugeMemory, IsAlignedAndAsksForHugePages) {
    if (AdviceIsIgnored()) {
        GTEST_SKIP() << "an emulator ignores madvise()";
    }
    for (const uint64_t bytes : {uint64_t(4096), 3 * MIB, 4 * MIB, 5 * MIB + 1000}) {
        HugeMemory memory(bytes);
        EXPECT_TRUE(IsAligned(reinterpret_cast<uintptr_t>(memory.Data()), HugeMemory::HUGE_PAGE_BYTES));
        EXPECT_EQ(std::count(memory.Data(), memory.Data() + bytes, 0), static_cast<int64_t>(bytes));
        std::fill_n(memory.Data(), bytes, 'x');
        if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0) {
            EXPECT_NE(MappingFlags(memory.Data()).find(" hg "), std::string::npos) << bytes;
        }
        HugeMemory moved = std::move(memory);
        EXPECT_EQ(moved.Data()[bytes - 1], 'x');
    }
    EXPECT_THROW(HugeMemory(uint64_t(1) << 60), std::bad_alloc);
}

} // namespace
} // namespace rawduck
