//! Reads that the emulated device asks for by blocks in threads, and that threads of the server serve; and the kernel alone,
//! with a ring that nobody serves.
#include "gpu/ring/host/ring_run.hpp"

#include "gpu/device/emulated.hpp"
#include "gpu/kernels/host_kernels.hpp"
#include "support/fake_device.hpp"
#include "support/test_support.hpp"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <random>
#include <thread>

namespace rawduck::gpu::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t CAPACITY = 1 << 20;
constexpr milliseconds SHORT{100};
constexpr seconds LONG{60};

class RingTest : public ::testing::Test {
  protected:
    void SetUp() override {
        std::mt19937 random(1);
        for (char &byte : state_.bytes) {
            byte = static_cast<char>(random());
        }
    }

    //! Offsets at random: an answer of another turn or slot has other bytes.
    static RingOptions Options(uint64_t reads, uint64_t bytes) {
        RingOptions options;
        std::mt19937 random(2);
        for (uint64_t i = 0; i < reads; i++) {
            options.offsets.push_back(random() % ((CAPACITY - bytes) / 512) * 512);
        }
        options.read_bytes = bytes;
        options.patience = LONG;
        return options;
    }

    std::unique_ptr<RingRun> Open(const RingOptions &options) {
        return std::make_unique<RingRun>(std::make_shared<EmulatedDevice>(),
                                         std::make_unique<BlockIo>(std::make_unique<FakeDevice>(state_),
                                                                   BlockIoOptions(), "fake0",
                                                                   std::make_shared<IoStats>()),
                                         options);
    }

    void ExpectAll(const RingRun &run, const RingOptions &options) const {
        for (size_t i = 0; i < options.offsets.size(); i++) {
            ASSERT_EQ(std::memcmp(run.Data() + i * options.read_bytes,
                                  state_.bytes.data() + options.offsets[i], options.read_bytes),
                      0)
                << "read " << i;
        }
    }

    void ReadAll(const RingOptions &options) {
        const auto run = Open(options);
        run->Start();
        ASSERT_TRUE(run->Wait(LONG));
        ExpectAll(*run, options);
        uint64_t commands = 0;
        for (const Command &command : state_.Commands()) {
            commands += command.length;
        }
        EXPECT_EQ(commands, options.offsets.size() * options.read_bytes) << "each is read once";
        std::vector<u64> taken(options.offsets.size());
        std::memcpy(taken.data(), run->Nanoseconds(), taken.size() * sizeof(u64));
        EXPECT_EQ(std::count(taken.begin(), taken.end(), 0), 0);
        EXPECT_EQ(run->MultiprocessorsHeld(), 0u);
        EXPECT_GT(run->ServerCpuNs(), 0u);
        EXPECT_TRUE(run->EndWithin(milliseconds(0))) << "it has ended already";
    }

    FakeState state_{CAPACITY};
};

TEST_F(RingTest, OneSlotAndOneBlock) {
    ReadAll(Options(100, 512));
}

TEST_F(RingTest, SlotsAreUsedManyTimes) {
    RingOptions options = Options(2000, 512);
    options.blocks = options.slots = 3;
    options.threads = 2;
    ReadAll(options);
}

TEST_F(RingTest, MoreBlocksAskThanThereAreSlots) {
    RingOptions options = Options(600, 4096 + 512);
    options.blocks = 16;
    options.slots = 3;
    options.threads = 3;
    ReadAll(options);
}

TEST_F(RingTest, MoreBlocksThanReads) {
    RingOptions options = Options(3, 64 << 10);
    options.blocks = 16;
    options.slots = 8;
    options.threads = 4;
    ReadAll(options);
}

TEST_F(RingTest, ReadsThatCannotBeAreRefusedBefore) {
    EXPECT_EQ(CatchError([&] { Open(Options(0, 512)); }).Code(), ErrorCode::INVALID);
    EXPECT_EQ(CatchError([&] { Open(Options(1, 0)); }).Code(), ErrorCode::INVALID);
    EXPECT_EQ(CatchError([&] { Open(Options(1, 520)); }).Code(), ErrorCode::INVALID);
    for (const auto member : {&RingOptions::blocks, &RingOptions::slots, &RingOptions::threads}) {
        RingOptions options = Options(1, 512);
        options.*member = 0;
        EXPECT_EQ(CatchError([&] { Open(options); }).Code(), ErrorCode::INVALID);
    }
}

TEST_F(RingTest, ARunThatIsNeverStartedLeavesNothing) {
    Open(Options(10, 512));
}

TEST_F(RingTest, AReadThatFailsEndsTheKernel) {
    state_.result = [](const Command &command, uint64_t number) {
        return number == 57 ? -EIO : static_cast<int64_t>(command.length);
    };
    RingOptions options = Options(5000, 512);
    options.blocks = 8;
    options.slots = 4;
    options.threads = 2;
    const auto run = Open(options);
    run->Start();
    const rawduck::Error error = CatchError([&] { run->Wait(LONG); });
    EXPECT_EQ(error.Code(), ErrorCode::IO);
    EXPECT_NE(std::string(error.what()).find("fake0"), std::string::npos) << error.what();
    EXPECT_LT(state_.Commands().size(), 200u) << "it ends at once";
}

//! Holds all reads back until it is let go. Threads that it holds back may outlive it.
class Gate {
  public:
    explicit Gate(FakeState &state) {
        state.on_submit = [door = door_](const Command &) {
            std::unique_lock<std::mutex> lock(door->mutex);
            door->is_reached = true;
            door->opened.wait(lock, [&] { return door->is_open; });
        };
    }
    ~Gate() { Open(); }
    void Open() {
        const std::lock_guard<std::mutex> lock(door_->mutex);
        door_->is_open = true;
        door_->opened.notify_all();
    }
    void AwaitRead() const {
        while (!door_->is_reached) {
            std::this_thread::sleep_for(milliseconds(1));
        }
    }

  private:
    struct Door {
        std::mutex mutex;
        std::condition_variable opened;
        bool is_open = false;
        std::atomic<bool> is_reached{false};
    };
    const std::shared_ptr<Door> door_ = std::make_shared<Door>();
};

TEST_F(RingTest, AnAbortEndsTheKernelWhileAReadHangs) {
    RingOptions options = Options(100, 512);
    options.blocks = 8;
    options.slots = 2;
    const auto run = Open(options);
    Gate gate(state_);
    run->Start();
    gate.AwaitRead();
    EXPECT_FALSE(run->Wait(SHORT));
    run->Abort();
    auto opened = std::async(std::launch::async, [&] {
        std::this_thread::sleep_for(SHORT);
        gate.Open();
    });
    const rawduck::Error error = CatchError([&] { run->Wait(LONG); });
    EXPECT_EQ(error.Code(), ErrorCode::INTERRUPTED);
    EXPECT_NE(std::string(error.what()).find("fake0"), std::string::npos) << error.what();
}

TEST_F(RingTest, AHangingReadHidesNoErrorAndIsNotWaitedForLonger) {
    RingOptions options = Options(100, 512);
    options.blocks = options.slots = 2;
    options.patience = SHORT;
    const auto run = Open(options);
    Gate gate(state_);
    run->Start();
    EXPECT_EQ(CatchError([&] { run->Wait(LONG); }).Code(), ErrorCode::IO);
    EXPECT_FALSE(run->EndWithin(SHORT)) << "a read still writes to its memory";
    gate.Open();
    EXPECT_TRUE(run->EndWithin(LONG));
}

TEST_F(RingTest, ARunThatIsGivenUpEndsTheKernel) {
    RingOptions options = Options(100000, 512);
    options.blocks = 4;
    options.slots = 4;
    const auto run = Open(options);
    run->Start();
    EXPECT_FALSE(run->Wait(milliseconds(20)));
}

TEST_F(RingTest, DataThatDoesNotComeEndsTheKernel) {
    RingOptions options = Options(100, 512);
    options.blocks = 4;
    options.slots = 2;
    options.patience = SHORT;
    const auto run = Open(options);
    Gate gate(state_);
    run->Start();
    gate.AwaitRead();
    auto opened = std::async(std::launch::async, [&] {
        std::this_thread::sleep_for(10 * SHORT);
        gate.Open();
    });
    const rawduck::Error error = CatchError([&] { run->Wait(LONG); });
    EXPECT_EQ(error.Code(), ErrorCode::IO);
    const std::string text = error.what();
    EXPECT_NE(text.find("emulated has waited for 100 ms"), std::string::npos) << text;
    EXPECT_NE(text.find("of fake0"), std::string::npos) << text;
}

//! The kernel's block in this thread, and its ring.
struct Alone {
    RingRequest request = {};
    RingAnswer answer = {};
    RingState state = {};
    u64 offset = 4096, given_back = 0, nanoseconds = 0, multiprocessor = 1;
    alignas(16) u8 data[512] = {7}, to[512] = {};
    u64 reads = 1;
    u64 patience_ns = std::chrono::nanoseconds(SHORT).count();

    RingEnd Run() {
        std::vector<u64> offsets(reads, offset), taken(reads);
        std::vector<u8> read(reads * sizeof(data));
        RingArguments arguments = {};
        arguments.requests = &request;
        arguments.answers = &answer;
        arguments.data = data;
        arguments.slots = 1;
        arguments.slot_bytes = arguments.read_bytes = sizeof(data);
        arguments.offsets = offsets.data();
        arguments.reads = reads;
        arguments.state = &state;
        arguments.given_back = &given_back;
        arguments.to = read.data();
        arguments.nanoseconds = taken.data();
        arguments.multiprocessors = &multiprocessor;
        arguments.patience_ns = patience_ns;
        const HostKernel *kernel = FindHostKernel("ask_for_reads");
        EXPECT_EQ(kernel->argument_bytes, sizeof(arguments));
        kernel->run(&arguments, 0);
        std::memcpy(to, read.data() + (reads - 1) * sizeof(data), sizeof(data));
        return static_cast<RingEnd>(state.end);
    }
};

TEST(RingKernel, TakesWhatIsServed) {
    Alone alone;
    alone.answer.served = 1;
    EXPECT_EQ(alone.Run(), RingEnd::NONE);
    EXPECT_EQ(alone.to[0], 7);
    EXPECT_EQ(alone.request.offset, 4096u);
    EXPECT_EQ(alone.request.bytes, 512u);
    EXPECT_EQ(alone.request.posted, 1u);
    EXPECT_EQ(alone.given_back, 1u);
    EXPECT_EQ(alone.multiprocessor, 0u);
}

TEST(RingKernel, TheAnswerOfAnEarlierTurnIsNotTaken) {
    Alone alone;
    alone.reads = 2;
    alone.state.next_ticket = 1;
    alone.given_back = 1;
    alone.answer.served = 1;
    EXPECT_EQ(alone.Run(), RingEnd::DATA_LATE);
    EXPECT_EQ(alone.state.ended_ticket, 1u);
    EXPECT_EQ(alone.request.posted, 2u);
    EXPECT_EQ(alone.to[0], 0);
    EXPECT_EQ(alone.given_back, RING_ABORTED);
}

TEST(RingKernel, ASlotThatIsInUseIsNotTaken) {
    Alone alone;
    alone.reads = 2;
    alone.state.next_ticket = 1;
    alone.answer.served = 2;
    EXPECT_EQ(alone.Run(), RingEnd::SLOT_LATE);
    EXPECT_EQ(alone.state.ended_ticket, 1u);
    EXPECT_EQ(alone.request.posted, 0u);
}

TEST(RingKernel, AnAbortEndsBothWaits) {
    Alone asked;
    asked.patience_ns = std::chrono::nanoseconds(LONG).count();
    asked.answer.served = RING_ABORTED;
    EXPECT_EQ(asked.Run(), RingEnd::ABORTED);
    Alone waiting;
    waiting.patience_ns = asked.patience_ns;
    waiting.given_back = RING_ABORTED;
    EXPECT_EQ(waiting.Run(), RingEnd::ABORTED);
    EXPECT_EQ(waiting.request.posted, 0u);
}

TEST(RingKernel, NothingBeginsBehindTheEnd) {
    Alone alone;
    alone.state.end = static_cast<u64>(RingEnd::DATA_LATE);
    alone.answer.served = 1;
    EXPECT_EQ(alone.Run(), RingEnd::DATA_LATE);
    EXPECT_EQ(alone.state.next_ticket, 0u);
}

//! A server for a ring whose kernel is this thread.
TEST_F(RingTest, AServerTrustsNoRequestAndKeepsAnAbort) {
    BlockIo io(std::make_unique<FakeDevice>(state_), BlockIoOptions(), "fake0", std::make_shared<IoStats>());
    RingRequest request = {0, 1024, 0};
    RingAnswer answer = {};
    alignas(512) char data[512];
    RingArguments ring = {};
    ring.requests = &request;
    ring.answers = &answer;
    ring.slots = 1;
    ring.slot_bytes = sizeof(data);
    ring.reads = 10;
    {
        RingServer server(io, ring, data, 1);
        StoreMark(&request.posted, 1);
        while (!server.Failure()) {
            std::this_thread::yield();
        }
        const rawduck::Error error = CatchError([&] { std::rethrow_exception(server.Failure()); });
        EXPECT_NE(std::string(error.what()).find("1024 bytes of fake0"), std::string::npos) << error.what();
    }
    EXPECT_EQ(LoadMark(&answer.served), RING_ABORTED);

    answer.served = 0;
    request = {0, 512, 0};
    Gate gate(state_);
    {
        RingServer server(io, ring, data, 1);
        StoreMark(&request.posted, 1);
        gate.AwaitRead();
        server.Abort();
        gate.Open();
    } // the read has come after all
    EXPECT_EQ(answer.served, RING_ABORTED);
}

} // namespace
} // namespace rawduck::gpu::testing
