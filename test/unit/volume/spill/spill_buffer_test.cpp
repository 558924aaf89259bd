#include "volume/spill/spill_buffer.hpp"

#include "support/fake_device.hpp"
#include "support/no_more_threads.hpp"
#include "support/out_of_memory.hpp"
#include "support/test_support.hpp"

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <functional>
#include <random>
#include <thread>

namespace rawduck {
namespace {

constexpr uint64_t BLOCK = 64 * KIB;

//! Commands of other threads than the test's, which are the buffer's, wait while it is closed.
class Door {
  public:
    void Close() { Set(false); }
    void Open() { Set(true); }
    void Pass() {
        std::unique_lock<std::mutex> lock(mutex_);
        waiting_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return open_; });
    }
    void AwaitSomebody() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return waiting_; });
    }

  private:
    void Set(bool open) {
        std::lock_guard<std::mutex> guard(mutex_);
        open_ = open;
        waiting_ = false;
        changed_.notify_all();
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = true, waiting_ = false;
};

//! Memory for 16 blocks; the fifth that is dirty sets the writer off.
class SpillBufferTest : public ::testing::Test {
  protected:
    SpillBufferTest() : state_(8 * MIB) {
        state_.caps.max_transfer_bytes = 256 * KIB;
        state_.on_submit = [this, tester = std::this_thread::get_id()](const Command &command) {
            if (std::this_thread::get_id() != tester) {
                (command.opcode == Opcode::WRITE ? writer_door_ : reader_door_).Pass();
            } else {
                own_reads_ += command.opcode == Opcode::READ ? 1 : 0;
            }
        };
        io_ = std::make_unique<BlockIo>(std::make_unique<FakeDevice>(state_), BlockIoOptions(), "fake0",
                                        std::make_shared<IoStats>());
        spill_ = std::make_unique<SpillBuffer>(*io_, SpillLimits::Fixed(16 * BLOCK));
    }
    ~SpillBufferTest() override {
        writer_door_.Open();
        reader_door_.Open();
        spill_.reset();
        io_.reset();
    }

    static Request Whole(Opcode opcode, uint64_t offset, std::vector<char> &data) {
        Request request;
        request.opcode = opcode;
        request.segments = {Segment{offset, data.data(), data.size(), PlacementClass::TEMPORARY}};
        return request;
    }
    std::vector<char> Write(uint64_t offset, uint64_t length, uint64_t seed) {
        std::vector<char> data = Pattern(length, seed);
        spill_->Write(Whole(Opcode::WRITE, offset, data));
        return data;
    }
    //! Blocks [from, to), each with its number as the seed.
    void WriteBlocks(uint64_t from, uint64_t to) {
        for (uint64_t i = from; i < to; i++) {
            Write(i * BLOCK, BLOCK, i);
        }
    }
    //! One at a time, so that each finds room in memory: blocks 24 to 39 stay there.
    void WriteFortyBlocks() {
        for (uint64_t i = 0; i < 40; i++) {
            WriteBlocks(i, i + 1);
            AwaitCompleted(Opcode::WRITE, i < 4 ? 0 : i - 3);
        }
    }
    std::vector<char> Read(uint64_t offset, uint64_t length) {
        std::vector<char> data(length);
        spill_->Read(Whole(Opcode::READ, offset, data));
        return data;
    }
    bool ReadsBack(uint64_t block) { return Read(block * BLOCK, BLOCK) == Pattern(BLOCK, block); }
    std::vector<char> OnDevice(uint64_t offset, uint64_t length) {
        std::lock_guard<std::mutex> guard(state_.mutex);
        return {state_.bytes.begin() + static_cast<int64_t>(offset),
                state_.bytes.begin() + static_cast<int64_t>(offset + length)};
    }
    uint64_t Completed(Opcode opcode) { return state_.Completed(opcode); }
    void AwaitCompleted(Opcode opcode, uint64_t commands) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (Completed(opcode) < commands) {
            ASSERT_LT(std::chrono::steady_clock::now(), end) << Completed(opcode) << " of " << commands;
            std::this_thread::yield();
        }
    }
    //! The commands whose opcode and range it is told of fail.
    void Fail(std::function<bool(const Command &)> which) {
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.result = [which = std::move(which)](const Command &command, uint64_t) -> int64_t {
            return which(command) ? -EIO : int64_t(command.length);
        };
    }
    //! What reading says that fails; empty when it does not.
    std::string Failure(uint64_t offset, uint64_t length) {
        try {
            Read(offset, length);
        } catch (const Error &error) {
            return error.what();
        }
        return "";
    }
    void ExpectAllGivenBack() {
        spill_->Forget(0, state_.bytes.size());
        for (int i = 0; i < 5000 && spill_->HeldBytes() > 0; i++) {
            spill_->Shrink();
            std::this_thread::sleep_for(std::chrono::milliseconds(1)); // of a command that was in flight
        }
        EXPECT_EQ(spill_->HeldBytes(), 0u);
    }

    FakeState state_;
    Door writer_door_, reader_door_;
    std::atomic<uint64_t> own_reads_{0}; //!< commands of the test's thread
    std::unique_ptr<BlockIo> io_;
    std::unique_ptr<SpillBuffer> spill_;
};

TEST_F(SpillBufferTest, WritesCollectAndAreReadFromMemory) {
    WriteBlocks(0, 4);
    EXPECT_TRUE(ReadsBack(1));
    const std::vector<char> first = Pattern(BLOCK, 0);
    EXPECT_EQ(Read(512, 1024), std::vector<char>(first.begin() + 512, first.begin() + 1536));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(Completed(Opcode::WRITE), 0u);
    WriteBlocks(4, 5);
    AwaitCompleted(Opcode::WRITE, 4);
    for (const uint64_t i : {0, 2, 3, 4}) {
        EXPECT_EQ(OnDevice(i * BLOCK, BLOCK), Pattern(BLOCK, i));
        EXPECT_TRUE(ReadsBack(i));
    }
    EXPECT_EQ(Completed(Opcode::READ), 0u) << "blocks stay in memory after they were written";
    EXPECT_EQ(spill_->Counters().reads, 6u);
    EXPECT_EQ(spill_->Counters().hits, 6u);
}

TEST_F(SpillBufferTest, AReadIsPutTogetherFromMemoryAndTheTarget) {
    const std::vector<char> middle = Pattern(BLOCK, 9);
    std::copy(middle.begin(), middle.end(), state_.bytes.begin() + BLOCK);
    const std::vector<char> first = Write(0, BLOCK, 1), last = Write(2 * BLOCK, BLOCK, 2);
    const std::vector<char> found = Read(BLOCK / 2, 2 * BLOCK);
    EXPECT_TRUE(std::equal(first.begin() + BLOCK / 2, first.end(), found.begin()));
    EXPECT_TRUE(std::equal(middle.begin(), middle.end(), found.begin() + BLOCK / 2));
    EXPECT_TRUE(std::equal(last.begin(), last.begin() + BLOCK / 2, found.begin() + BLOCK / 2 + BLOCK));
    EXPECT_EQ(Completed(Opcode::WRITE), 0u);
}

TEST_F(SpillBufferTest, WhatIsForgottenBeforeItsWriteBeginsIsNeverWritten) {
    WriteBlocks(0, 1);
    spill_->Forget({Extent{0, 0, BLOCK / ALLOCATION_UNIT_BYTES}});
    WriteBlocks(1, 5);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(Completed(Opcode::WRITE), 0u) << "what is dropped is no longer dirty";
    WriteBlocks(5, 6);
    AwaitCompleted(Opcode::WRITE, 5);
    spill_.reset();
    EXPECT_EQ(OnDevice(0, BLOCK), std::vector<char>(BLOCK, 0));
    EXPECT_EQ(Completed(Opcode::WRITE), 5u);
}

TEST_F(SpillBufferTest, WhatWasReadIsWrittenLast) {
    WriteBlocks(0, 4);
    EXPECT_TRUE(ReadsBack(0));
    writer_door_.Close();
    WriteBlocks(4, 12);
    writer_door_.AwaitSomebody();
    writer_door_.Open();
    AwaitCompleted(Opcode::WRITE, 8);
    EXPECT_EQ(OnDevice(0, BLOCK), std::vector<char>(BLOCK, 0)) << "it may be written anew";
}

TEST_F(SpillBufferTest, ForgettingWaitsForAWriteInFlight) {
    writer_door_.Close();
    WriteBlocks(0, 5);
    writer_door_.AwaitSomebody();
    std::atomic<bool> forgotten{false};
    std::thread forgetter([&] {
        spill_->Forget(0, BLOCK);
        forgotten = true;
        EXPECT_EQ(OnDevice(0, BLOCK), Pattern(BLOCK, 0));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(forgotten) << "the range would be given to somebody else and then overwritten";
    writer_door_.Open();
    forgetter.join();
}

TEST_F(SpillBufferTest, AnOverwriteWins) {
    for (uint64_t seed = 0; seed < 50; seed++) {
        WriteBlocks(1, 5);
        Write(0, BLOCK, seed);
        const std::vector<char> last = Write(0, BLOCK, 1000 + seed);
        ASSERT_EQ(Read(0, BLOCK), last);
    }
    const std::vector<char> last = Write(0, BLOCK, 7);
    const std::vector<char> half = Write(0, BLOCK / 2, 8);
    EXPECT_EQ(Read(0, BLOCK / 2), half);
    const std::vector<char> rest = Read(BLOCK / 2, BLOCK / 2);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), last.begin() + BLOCK / 2)) << "it was written first";
}

TEST_F(SpillBufferTest, MemoryIsBoundedAndWritesGoOnWithoutIt) {
    writer_door_.Close();
    for (uint64_t i = 0; i < 20; i++) {
        WriteBlocks(i, i + 1);
        EXPECT_LE(spill_->HeldBytes(), 16 * BLOCK);
    }
    EXPECT_EQ(spill_->HeldBytes(), 16 * BLOCK);
    EXPECT_EQ(Completed(Opcode::WRITE), 4u) << "sixteen are held, the others were written by the caller";
    for (uint64_t i = 0; i < 20; i++) {
        EXPECT_TRUE(ReadsBack(i));
    }
    writer_door_.Open();
    ExpectAllGivenBack();
}

TEST_F(SpillBufferTest, WhatWasReadGivesWayFirst) {
    WriteBlocks(0, 16);
    AwaitCompleted(Opcode::WRITE, 12);
    EXPECT_TRUE(ReadsBack(1));
    Write(20 * BLOCK, BLOCK, 20);
    for (const uint64_t block : {0, 2, 15, 20}) {
        EXPECT_TRUE(ReadsBack(block));
    }
    EXPECT_EQ(own_reads_, 0u);
    EXPECT_TRUE(ReadsBack(1));
    EXPECT_EQ(own_reads_, 1u);
}

TEST_F(SpillBufferTest, ReadsAheadInTheOrderOfWriting) {
    WriteFortyBlocks();
    for (uint64_t i = 0; i < 12; i++) {
        EXPECT_TRUE(ReadsBack(i));
        AwaitCompleted(Opcode::READ, i + 5);
    }
    EXPECT_EQ(own_reads_, 1u) << "only of the first";
    EXPECT_EQ(spill_->Counters().unused, 0u);
    EXPECT_EQ(spill_->Counters().ahead, 15u);
}

TEST_F(SpillBufferTest, WhatIsWrittenOrForgottenMeanwhileIsNotTakenFromAReadAhead) {
    WriteFortyBlocks();
    reader_door_.Close();
    EXPECT_TRUE(ReadsBack(0));
    reader_door_.AwaitSomebody();
    const std::vector<char> last = Write(BLOCK, BLOCK, 99);
    spill_->Forget(2 * BLOCK, BLOCK); // waits for nothing: nobody will see what is read
    EXPECT_EQ(Read(BLOCK, BLOCK), last);
    reader_door_.Open();
    EXPECT_TRUE(ReadsBack(3)); // waits for what is in flight
    EXPECT_EQ(Read(BLOCK, BLOCK), last);
    ExpectAllGivenBack();
}

TEST_F(SpillBufferTest, WhatWasForgottenIsNotReadAhead) {
    WriteFortyBlocks();
    spill_->Forget(BLOCK, 2 * BLOCK);
    EXPECT_TRUE(ReadsBack(0));
    EXPECT_TRUE(ReadsBack(3)); // waits for what is in flight
    for (const Command &command : state_.Commands()) {
        EXPECT_TRUE(command.opcode == Opcode::WRITE || command.device_offset < BLOCK ||
                    command.device_offset >= 3 * BLOCK)
            << "somebody else may have got the range";
    }
}

TEST_F(SpillBufferTest, AReadAheadThatFailsIsToldToWhoeverWantsTheBlockOnly) {
    WriteFortyBlocks();
    Fail([](const Command &command) {
        return command.opcode == Opcode::READ && command.device_offset == 2 * BLOCK;
    });
    EXPECT_TRUE(ReadsBack(0));
    AwaitCompleted(Opcode::READ, 5);
    EXPECT_TRUE(ReadsBack(1));
    EXPECT_NE(Failure(2 * BLOCK, BLOCK).find("fake0"), std::string::npos);
    Fail([](const Command &) { return false; });
    EXPECT_TRUE(ReadsBack(2));
}

TEST_F(SpillBufferTest, AFailedWriteIsToldToWhoeverReadsTheRangeUntilItIsWrittenAgain) {
    Fail([](const Command &command) { return command.opcode == Opcode::WRITE; });
    WriteBlocks(1, 6);
    AwaitCompleted(Opcode::WRITE, 5);
    for (int i = 0; i < 5000 && Failure(BLOCK, BLOCK).empty(); i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1)); // completed, not yet looked at
    }
    EXPECT_NE(Failure(BLOCK, BLOCK).find("fake0"), std::string::npos) << Failure(BLOCK, BLOCK);
    EXPECT_EQ(Failure(0, BLOCK), "");
    Fail([](const Command &) { return false; });
    const std::vector<char> half = Write(BLOCK, BLOCK / 2, 2);
    EXPECT_EQ(Read(BLOCK, BLOCK / 2), half);
    EXPECT_NE(Failure(BLOCK + BLOCK / 2, BLOCK / 2), "") << "the other half is still lost";
    ExpectAllGivenBack();
    EXPECT_EQ(Failure(BLOCK, BLOCK), "");
}

TEST_F(SpillBufferTest, AWriterWithoutMemoryTriesAgain) {
    const auto left = std::make_shared<std::atomic<int>>(3);
    state_.on_submit = [left, tester = std::this_thread::get_id()](const Command &command) {
        if (std::this_thread::get_id() != tester && command.opcode == Opcode::WRITE && (*left)-- > 0) {
            throw std::bad_alloc();
        }
    };
    WriteBlocks(0, 5);
    AwaitCompleted(Opcode::WRITE, 5);
    EXPECT_LE(*left, 0);
    for (uint64_t i = 0; i < 5; i++) {
        EXPECT_TRUE(ReadsBack(i)) << i;
    }
}

TEST_F(SpillBufferTest, AFailedWriteIsCountedOnce) {
    Fail([](const Command &command) { return command.opcode == Opcode::WRITE; });
    WriteBlocks(0, 5);
    AwaitCompleted(Opcode::WRITE, 5);
    for (int i = 0; i < 5000 && Failure(0, BLOCK).empty(); i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(io_->Stats().Snapshot(IoOperation::WRITE).errors, 1u);
    EXPECT_NE(Failure(0, BLOCK), "");
    EXPECT_EQ(io_->Stats().Snapshot(IoOperation::READ).errors, 0u) << "the target was not asked";
}

TEST_F(SpillBufferTest, WithoutThreadsEverythingGoesToTheTarget) {
    {
        NoMoreThreads none;
        WriteBlocks(0, 8);
        EXPECT_EQ(Completed(Opcode::WRITE), 8u);
        for (uint64_t i = 0; i < 8; i++) {
            EXPECT_TRUE(ReadsBack(i));
        }
    }
    WriteBlocks(8, 10);
    EXPECT_EQ(Completed(Opcode::WRITE), 8u) << "threads can be made again";
    EXPECT_TRUE(ReadsBack(8));
    ExpectAllGivenBack();
}

TEST_F(SpillBufferTest, WhereverMemoryRunsOutNothingIsLostAndNobodyWaitsForEver) {
    state_.ReserveCommands(100000);
    WriteBlocks(0, 30);
    bool failed = true;
    for (int64_t before = 0; failed; before++) {
        failed = false;
        for (uint64_t block = 0; block < 30; block++) {
            std::vector<char> data = Pattern(BLOCK, block + 1), back(BLOCK);
            const Request write = Whole(Opcode::WRITE, block * BLOCK, data);
            const Request read = Whole(Opcode::READ, block * BLOCK, back);
            const auto with_failure = [&](const std::function<void()> &action) {
                OutOfMemoryAfter memory(before);
                try {
                    action();
                } catch (const std::bad_alloc &) {
                    return false;
                } catch (
                    const Error &) { // without memory for a bounce buffer: which thread makes it is chance
                    EXPECT_TRUE(memory.Failed());
                    return false;
                }
                failed = failed || memory.Failed();
                return true;
            };
            if (!with_failure([&] { spill_->Write(write); })) {
                failed = true;
                spill_->Write(write);
            }
            if (!with_failure([&] { spill_->Read(read); })) {
                failed = true;
                spill_->Read(read);
            }
            ASSERT_EQ(back == data, true) << "block " << block << ", allocation " << before;
        }
    }
    ExpectAllGivenBack();
}

TEST_F(SpillBufferTest, WithoutMemoryEverythingGoesToTheTarget) {
    spill_ = std::make_unique<SpillBuffer>(*io_, SpillLimits::Fixed(0));
    WriteBlocks(0, 3);
    EXPECT_EQ(Completed(Opcode::WRITE), 3u);
    EXPECT_TRUE(ReadsBack(0));
    EXPECT_TRUE(ReadsBack(1));
    EXPECT_EQ(Completed(Opcode::READ), 2u);
    EXPECT_EQ(spill_->HeldBytes(), 0u);
}

TEST_F(SpillBufferTest, ManyThreadsReadBackWhatTheyWrote) {
    constexpr int THREADS = 4, STEPS = 2000, SLOTS = 32;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < THREADS; thread++) {
        threads.emplace_back([this, thread] {
            std::mt19937_64 random(static_cast<uint64_t>(thread));
            std::vector<std::vector<char>> expected(SLOTS);
            size_t next = 0;
            for (int step = 0; step < STEPS; step++) {
                const auto action = random() % 16;
                // Mostly one after the other, as DuckDB does, so that much is read ahead.
                const size_t slot = action % 4 == 0 ? random() % SLOTS : next++ % SLOTS;
                const uint64_t offset = (static_cast<uint64_t>(thread) * SLOTS + slot) * BLOCK;
                if (action < 8) {
                    expected[slot] = Write(offset, BLOCK >> random() % 3, random());
                } else if (action < 15 && !expected[slot].empty()) {
                    ASSERT_EQ(Read(offset, expected[slot].size()), expected[slot]);
                } else if (action == 15) {
                    spill_->Forget(offset, BLOCK);
                    expected[slot].clear();
                }
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_LE(spill_->HeldBytes(), 16 * BLOCK);
    EXPECT_GT(spill_->Counters().ahead, 0u);
    ExpectAllGivenBack();
}

} // namespace
} // namespace rawduck
