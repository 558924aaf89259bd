#include "volume/spill_buffer.hpp"

#include "io_fake_device.hpp"
#include "io_test_support.hpp"

#include <cerrno>
#include <condition_variable>
#include <random>
#include <thread>

namespace rawduck {
namespace {

constexpr uint64_t BLOCK = 64 * KIB;

//! Commands of other threads than the test's, which are the writer's, wait while it is closed.
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

class SpillBufferTest : public ::testing::Test {
  protected:
    SpillBufferTest() : state_(4 * MIB) {
        state_.caps.max_transfer_bytes = 256 * KIB;
        state_.on_submit = [this, tester = std::this_thread::get_id()](const Command &command) {
            if (std::this_thread::get_id() != tester && command.opcode == Opcode::WRITE) {
                door_.Pass();
            }
        };
        io_ = std::make_unique<BlockIo>(std::make_unique<FakeDevice>(state_), BlockIoOptions(), "fake0",
                                        std::make_shared<IoStats>());
        spill_ = std::make_unique<SpillBuffer>(*io_, 1 * MIB);
    }
    ~SpillBufferTest() override {
        door_.Open();
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
    std::vector<char> Read(uint64_t offset, uint64_t length) {
        std::vector<char> data(length);
        spill_->Read(Whole(Opcode::READ, offset, data));
        return data;
    }
    std::vector<char> OnDevice(uint64_t offset, uint64_t length) {
        std::lock_guard<std::mutex> guard(state_.mutex);
        return {state_.bytes.begin() + static_cast<int64_t>(offset),
                state_.bytes.begin() + static_cast<int64_t>(offset + length)};
    }
    uint64_t Completed() {
        std::lock_guard<std::mutex> guard(state_.mutex);
        return state_.completed;
    }
    void AwaitCompleted(uint64_t commands) {
        while (Completed() < commands) {
            std::this_thread::yield();
        }
    }

    FakeState state_;
    Door door_;
    std::unique_ptr<BlockIo> io_;
    std::unique_ptr<SpillBuffer> spill_;
};

TEST_F(SpillBufferTest, AWriteReturnsBeforeTheDeviceHasItAndIsReadFromMemory) {
    door_.Close();
    const std::vector<char> data = Write(BLOCK, BLOCK, 1);
    EXPECT_EQ(Read(BLOCK, BLOCK), data);
    EXPECT_EQ(Read(BLOCK + 512, 1024), std::vector<char>(data.begin() + 512, data.begin() + 1536));
    EXPECT_EQ(Completed(), 0u);
    EXPECT_EQ(OnDevice(BLOCK, BLOCK), std::vector<char>(BLOCK, 0));
    door_.Open();
    AwaitCompleted(1);
    EXPECT_EQ(OnDevice(BLOCK, BLOCK), data);
    EXPECT_EQ(Read(BLOCK, BLOCK), data);
}

TEST_F(SpillBufferTest, AReadAcrossPendingWritesSeesAllOfThem) {
    const std::vector<char> first = Write(0, BLOCK, 1), second = Write(BLOCK, BLOCK, 2);
    const std::vector<char> found = Read(BLOCK / 2, BLOCK);
    EXPECT_TRUE(std::equal(first.begin() + BLOCK / 2, first.end(), found.begin()));
    EXPECT_TRUE(std::equal(second.begin(), second.begin() + BLOCK / 2, found.begin() + BLOCK / 2));
}

TEST_F(SpillBufferTest, WhatIsForgottenBeforeItsWriteBeginsIsNeverWritten) {
    door_.Close();
    const std::vector<char> data = Write(0, BLOCK, 1);
    door_.AwaitSomebody();
    Write(BLOCK, BLOCK, 2);
    spill_->Forget({Extent{0, BLOCK / UNIT_SIZE, BLOCK / UNIT_SIZE}});
    door_.Open();
    AwaitCompleted(1);
    EXPECT_EQ(OnDevice(0, BLOCK), data);
    spill_.reset();
    EXPECT_EQ(OnDevice(BLOCK, BLOCK), std::vector<char>(BLOCK, 0));
    EXPECT_EQ(Completed(), 1u);
}

TEST_F(SpillBufferTest, ForgettingWaitsForAWriteInFlight) {
    door_.Close();
    Write(0, BLOCK, 1);
    door_.AwaitSomebody();
    std::atomic<bool> forgotten{false};
    std::thread forgetter([&] {
        spill_->Forget(0, BLOCK);
        forgotten = true;
        EXPECT_EQ(Completed(), 1u);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(forgotten) << "the device still reads from memory that somebody may get";
    door_.Open();
    forgetter.join();
}

TEST_F(SpillBufferTest, AnOverwriteOfAPendingWriteWins) {
    for (uint64_t seed = 0; seed < 50; seed++) {
        Write(0, BLOCK, seed);
        const std::vector<char> last = Write(0, BLOCK, 1000 + seed);
        ASSERT_EQ(Read(0, BLOCK), last);
    }
    const std::vector<char> last = Write(0, BLOCK, 7);
    AwaitCompleted(1);
    Read(0, 2 * BLOCK); // waits until the device has it
    EXPECT_EQ(OnDevice(0, BLOCK), last);
}

TEST_F(SpillBufferTest, MemoryIsBoundedAndWritesGoOnWithoutIt) {
    door_.Close();
    for (uint64_t i = 0; i < 10; i++) {
        Write(i * BLOCK, BLOCK, i);
        EXPECT_LE(spill_->HeldBytes(), 1 * MIB);
    }
    EXPECT_EQ(spill_->HeldBytes(), 1 * MIB);
    EXPECT_EQ(Completed(), 6u) << "four are held, the others were written by the caller";
    for (uint64_t i = 0; i < 10; i++) {
        EXPECT_EQ(Read(i * BLOCK, BLOCK), Pattern(BLOCK, i));
    }
    door_.Open();
    Read(0, 10 * BLOCK);
    spill_->Shrink();
    EXPECT_EQ(spill_->HeldBytes(), 0u);
}

TEST_F(SpillBufferTest, AFailedWriteIsToldToWhoeverReadsTheRangeUntilItIsWrittenAgain) {
    state_.result = [](const Command &command, uint64_t) -> int64_t {
        return command.opcode == Opcode::WRITE ? -EIO : int64_t(command.length);
    };
    Write(BLOCK, BLOCK, 1);
    AwaitCompleted(1);
    const auto failure = [&](uint64_t offset, uint64_t length) -> std::string {
        try {
            Read(offset, length);
        } catch (const Error &error) {
            return error.what();
        }
        return "";
    };
    for (int i = 0; i < 5000 && failure(BLOCK, BLOCK).empty(); i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1)); // completed, not yet looked at
    }
    EXPECT_NE(failure(BLOCK, BLOCK).find("fake0"), std::string::npos) << failure(BLOCK, BLOCK);
    EXPECT_EQ(failure(0, BLOCK), "");
    state_.result = nullptr;
    const std::vector<char> half = Write(BLOCK, BLOCK / 2, 2);
    EXPECT_EQ(Read(BLOCK, BLOCK / 2), half);
    EXPECT_NE(failure(BLOCK + BLOCK / 2, BLOCK / 2), "") << "the other half is still lost";
    spill_->Forget(0, 4 * BLOCK);
    EXPECT_EQ(failure(BLOCK, BLOCK), "");
}

TEST_F(SpillBufferTest, ManyThreadsReadBackWhatTheyWrote) {
    constexpr int THREADS = 4, STEPS = 400, SLOTS = 8;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < THREADS; thread++) {
        threads.emplace_back([this, thread] {
            std::mt19937_64 random(static_cast<uint64_t>(thread));
            std::vector<std::vector<char>> expected(SLOTS);
            for (int step = 0; step < STEPS; step++) {
                const size_t slot = random() % SLOTS;
                const uint64_t offset = (static_cast<uint64_t>(thread) * SLOTS + slot) * BLOCK;
                const auto action = random() % 8;
                if (action < 4) {
                    expected[slot] = Write(offset, BLOCK, random());
                } else if (action < 7 && !expected[slot].empty()) {
                    ASSERT_EQ(Read(offset, BLOCK), expected[slot]);
                } else if (action == 7) {
                    spill_->Forget(offset, BLOCK);
                    expected[slot].clear();
                }
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_LE(spill_->HeldBytes(), 1 * MIB);
}

} // namespace
} // namespace rawduck
