//! A SpillBuffer that has as much memory as is free.
#include "volume/spill/spill_buffer.hpp"

#include "support/fake_device.hpp"
#include "support/test_support.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <random>
#include <sys/resource.h>
#include <thread>

namespace rawduck {
namespace {

constexpr uint64_t GROWN_BLOCK = 256 * KIB;
constexpr uint64_t MAPPED_BLOCKS = SpillLimits::MAPPED_BYTES_MAX / GROWN_BLOCK;
constexpr uint64_t BLOCKS = MAPPED_BLOCKS + 128; // 60 MiB
constexpr uint64_t PLENTY = 900 * MIB;

class SpillGrowthTest : public ::testing::Test {
  protected:
    SpillGrowthTest() : state_(BLOCKS * GROWN_BLOCK) {
        state_.caps.max_transfer_bytes = GROWN_BLOCK;
        io_ = std::make_unique<BlockIo>(std::make_unique<FakeDevice>(state_), BlockIoOptions(), "fake0",
                                        std::make_shared<IoStats>());
        spill_ = std::make_unique<SpillBuffer>(*io_, SpillLimits::Free(supply_));
    }
    ~SpillGrowthTest() override {
        spill_.reset();
        io_.reset();
    }

    void Write(uint64_t block, uint32_t seed) {
        std::vector<char> data = Pattern(GROWN_BLOCK, seed);
        Request request;
        request.opcode = Opcode::WRITE;
        request.segments = {
            Segment{block * GROWN_BLOCK, data.data(), GROWN_BLOCK, PlacementClass::TEMPORARY}};
        spill_->Write(request);
    }
    std::vector<char> Read(uint64_t block) {
        std::vector<char> data(GROWN_BLOCK);
        Request request;
        request.opcode = Opcode::READ;
        request.segments = {
            Segment{block * GROWN_BLOCK, data.data(), GROWN_BLOCK, PlacementClass::TEMPORARY}};
        spill_->Read(request);
        return data;
    }
    //! Each with its number as the seed.
    void WriteAll() {
        for (uint32_t block = 0; block < BLOCKS; block++) {
            Write(block, block);
        }
    }
    void ExpectAllRead() {
        for (uint32_t block = 0; block < BLOCKS; block++) {
            ASSERT_EQ(Read(block) == Pattern(GROWN_BLOCK, block), true) << "block " << block;
        }
    }
    uint64_t Completed(Opcode opcode) { return state_.Completed(opcode); }
    //! Until what is mapped is all that is held, and the areas for transfers.
    void AwaitShrunk() {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (spill_->HeldBytes() > SpillLimits::MAPPED_BYTES_MAX + 2 * SpillMemory::TRANSFER_BYTES) {
            ASSERT_LT(std::chrono::steady_clock::now(), end) << spill_->HeldBytes();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }

    FakeState state_;
    std::mutex hanging_; //!< held while the device hangs
    std::atomic<uint64_t> available_bytes_{PLENTY};
    MemorySupply supply_{
        [this] { return std::vector<MemoryLevel>{{"machine", GIB, available_bytes_, std::nullopt}}; }};
    std::unique_ptr<BlockIo> io_;
    std::unique_ptr<SpillBuffer> spill_;
};

TEST_F(SpillGrowthTest, WhileMemoryIsFreeNothingIsWritten) {
    WriteAll();
    EXPECT_GE(spill_->HeldBytes(), BLOCKS * GROWN_BLOCK);
    EXPECT_GT(spill_->CapacityBytes(), BLOCKS * GROWN_BLOCK);
    ExpectAllRead();
    EXPECT_EQ(Completed(Opcode::WRITE), 0u);
    EXPECT_EQ(Completed(Opcode::READ), 0u);
    spill_->Forget(0, BLOCKS * GROWN_BLOCK);
    spill_->Shrink();
    EXPECT_EQ(spill_->HeldBytes(), 0u);
    EXPECT_EQ(spill_->Counters().given_way_bytes, 0u);
}

TEST_F(SpillGrowthTest, WhatIsNotUsedAnyMoreIsGivenBack) {
    for (const bool is_fixed : {false, true}) {
        spill_ = std::make_unique<SpillBuffer>(*io_, is_fixed ? SpillLimits::Fixed(128 * MIB)
                                                              : SpillLimits::Free(supply_));
        WriteAll();
        EXPECT_GE(spill_->HeldBytes(), BLOCKS * GROWN_BLOCK);
        spill_->Forget(0, BLOCKS * GROWN_BLOCK);
        AwaitShrunk();
    }
}

TEST_F(SpillGrowthTest, GivesWayToOthersAndLosesNothing) {
    WriteAll();
    available_bytes_ = 0;
    AwaitShrunk();
    EXPECT_GE(spill_->Counters().given_way_bytes, 112 * GROWN_BLOCK);
    EXPECT_GE(Completed(Opcode::WRITE), 112u);
    ExpectAllRead();
    EXPECT_LE(spill_->CapacityBytes(), SpillLimits::MAPPED_BYTES_MAX + spill_->HeldBytes());
    available_bytes_ = PLENTY;
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    spill_->Forget(0, BLOCKS * GROWN_BLOCK);
    WriteAll();
    EXPECT_GE(spill_->HeldBytes(), BLOCKS * GROWN_BLOCK) << "it grows again";
    ExpectAllRead();
}

TEST_F(SpillGrowthTest, WithoutFreeMemoryItHasWhatItAlwaysHas) {
    available_bytes_ = 0;
    WriteAll();
    EXPECT_LE(spill_->HeldBytes(), SpillLimits::MAPPED_BYTES_MAX);
    ExpectAllRead();
}

TEST_F(SpillGrowthTest, UnusedMemoryIsGivenBackWhileTheDeviceHangs) {
    std::unique_lock<std::mutex> hangs(hanging_);
    state_.on_submit = [this](const Command &) { const std::lock_guard<std::mutex> wait(hanging_); };
    WriteAll();
    const uint64_t before = spill_->HeldBytes();
    spill_->Forget(MAPPED_BLOCKS * GROWN_BLOCK, 64 * GROWN_BLOCK);
    available_bytes_ = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (spill_->HeldBytes() > before - 64 * GROWN_BLOCK + SpillMemory::TRANSFER_BYTES &&
           std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_LE(spill_->HeldBytes(), before - 64 * GROWN_BLOCK + SpillMemory::TRANSFER_BYTES);
    hangs.unlock();
    AwaitShrunk();
}

TEST_F(SpillGrowthTest, WhatTheSystemHasNoMemoryForGoesToTheTarget) {
    rlimit usual{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
    const rlimit none{0, usual.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
    WriteAll();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &usual), 0);
    EXPECT_GE(Completed(Opcode::WRITE), 128u);
    ExpectAllRead();
}

TEST_F(SpillGrowthTest, AFailedWriteWhileGivingWayIsToldToWhoeverReads) {
    {
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.result = [](const Command &command, uint64_t) -> int64_t {
            return command.opcode == Opcode::WRITE ? -EIO : int64_t(command.length);
        };
    }
    WriteAll();
    available_bytes_ = 0;
    AwaitShrunk();
    EXPECT_NE(std::string(CatchError([&] { Read(MAPPED_BLOCKS); }).what()).find("fake0"), std::string::npos);
}

TEST_F(SpillGrowthTest, ManyThreadsReadBackWhatTheyWroteWhileMemoryComesAndGoes) {
    constexpr uint64_t THREADS = 4, STEPS = 600, SLOTS = BLOCKS / THREADS;
    std::atomic<bool> stop{false};
    std::thread others([&] {
        for (std::mt19937_64 random(1); !stop;) {
            available_bytes_ = random() % 2 == 0 ? random() % (64 * MIB) : PLENTY;
            std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
        }
    });
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < THREADS; thread++) {
        threads.emplace_back([this, thread] {
            std::mt19937_64 random(thread);
            std::vector<std::optional<uint32_t>> expected(SLOTS);
            uint64_t next = 0;
            for (uint64_t step = 0; step < STEPS; step++) {
                const uint64_t action = random() % 16;
                const uint64_t slot = action % 4 == 0 ? random() % SLOTS : next++ % SLOTS;
                const uint64_t block = thread * SLOTS + slot;
                if (action < 8) {
                    expected[slot] = static_cast<uint32_t>(random());
                    Write(block, *expected[slot]);
                } else if (action < 15 && expected[slot]) {
                    ASSERT_EQ(Read(block) == Pattern(GROWN_BLOCK, *expected[slot]), true);
                } else if (action == 15) {
                    spill_->Forget(block * GROWN_BLOCK, GROWN_BLOCK);
                    expected[slot].reset();
                }
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    stop = true;
    others.join();
    spill_->Forget(0, BLOCKS * GROWN_BLOCK);
    for (int i = 0; i < 5000 && spill_->HeldBytes() > 0; i++) {
        spill_->Shrink();
        std::this_thread::sleep_for(std::chrono::milliseconds(1)); // of a command that was in flight
    }
    EXPECT_EQ(spill_->HeldBytes(), 0u);
}

} // namespace
} // namespace rawduck
