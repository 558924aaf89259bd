#include "volume/spill/memory_supply.hpp"

#include <gtest/gtest.h>
#include <new>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace rawduck {
namespace {

//! A machine of 16 GiB, of which 1 GiB is kept free.
class MemorySupplyTest : public ::testing::Test {
  protected:
    static constexpr uint64_t TOTAL = 16 * GIB, RESERVE = 1 * GIB;

    //! Long enough for the supply to look again.
    static void Wait() { std::this_thread::sleep_for(std::chrono::milliseconds(120)); }
    void SetAvailable(uint64_t bytes) { levels_[0].available_bytes = bytes; }

    std::vector<MemoryLevel> levels_{{"machine", TOTAL, 9 * GIB, std::nullopt}};
    int looks_ = 0;
    MemorySupply supply_{[this] {
        looks_++;
        return levels_;
    }};
};

TEST_F(MemorySupplyTest, WhatIsFreeBeyondAReserveMayBeTaken) {
    EXPECT_EQ(MemorySupply::ReserveBytes(TOTAL), RESERVE);
    EXPECT_EQ(MemorySupply::ReserveBytes(256 * MIB), 64 * MIB);
    EXPECT_EQ(MemorySupply::ReserveBytes(1024 * GIB), 4 * GIB);
    EXPECT_TRUE(supply_.TryTake(1 * MIB, 0));
    EXPECT_EQ(supply_.RoomBytes(), 8 * GIB);
    SetAvailable(RESERVE);
    Wait();
    EXPECT_FALSE(supply_.TryTake(1, 0));
    EXPECT_EQ(supply_.RoomBytes(), 0u);
}

TEST_F(MemorySupplyTest, NobodyHoldsMoreThanAQuarter) {
    EXPECT_TRUE(supply_.TryTake(512 * MIB, 2 * GIB)); // 8 GiB are free
    SetAvailable(9 * GIB - 512 * MIB);
    EXPECT_FALSE(supply_.TryTake(512 * MIB, 2 * GIB)) << "half a GiB was taken meanwhile";
    EXPECT_TRUE(supply_.TryTake(256 * MIB, 512 * MIB)) << "somebody who holds less";
    EXPECT_EQ(supply_.CapacityBytes(2 * GIB), 2 * GIB + 512 * MIB) << "as of the last look";
    Wait();
    EXPECT_EQ(supply_.ToGiveBack(2 * GIB + 768 * MIB), 0u) << "a little more says nothing";
    SetAvailable(3 * GIB); // 2 GiB are free
    Wait();
    EXPECT_EQ(supply_.ToGiveBack(2 * GIB), 1 * GIB) << "then 1 GiB is held, and 3 are free";
    EXPECT_EQ(supply_.ToGiveBack(512 * MIB), 0u) << "another volume";
}

TEST_F(MemorySupplyTest, TheTightestLevelCounts) {
    levels_.push_back({"/group", 1 * GIB, 164 * MIB, std::nullopt});
    EXPECT_TRUE(supply_.TryTake(1 * MIB, 0));
    EXPECT_EQ(supply_.RoomBytes(), 100 * MIB);
}

TEST_F(MemorySupplyTest, ItLooksAgainBeforeAnEighthOfWhatIsThereIsTaken) {
    EXPECT_TRUE(supply_.TryTake(1 * GIB, 0));
    EXPECT_EQ(looks_, 1);
    SetAvailable(RESERVE + 16 * MIB); // others were faster
    EXPECT_TRUE(supply_.TryTake(4 * MIB, 0));
    EXPECT_EQ(looks_, 2);
    SetAvailable(RESERVE);
    EXPECT_FALSE(supply_.TryTake(1 * MIB, 0));
    EXPECT_FALSE(supply_.TryTake(1 * MIB, 0));
    EXPECT_EQ(looks_, 3) << "where there is none, it does not look each time";
    Wait();
    SetAvailable(9 * GIB);
    EXPECT_TRUE(supply_.TryTake(1 * MIB, 0));
}

TEST_F(MemorySupplyTest, WhatIsMissingOfTheReserveIsGivenBackOnce) {
    SetAvailable(RESERVE * 4 / 5);
    EXPECT_EQ(supply_.ToGiveBack(0), 0u) << "a little less says nothing";
    SetAvailable(RESERVE / 2);
    Wait();
    EXPECT_EQ(supply_.ToGiveBack(100 * MIB), 100 * MIB);
    EXPECT_EQ(supply_.ToGiveBack(512 * MIB), RESERVE / 2 - 100 * MIB) << "another volume";
    EXPECT_EQ(supply_.ToGiveBack(100 * MIB), 75 * MIB) << "a quarter may be held, where nothing is free";
    EXPECT_EQ(supply_.Interval(), std::chrono::milliseconds(20));
    SetAvailable(9 * GIB);
    Wait();
    EXPECT_EQ(supply_.ToGiveBack(2 * GIB), 0u);
    EXPECT_EQ(supply_.Interval(), std::chrono::milliseconds(100));
}

TEST_F(MemorySupplyTest, TasksThatWaitForMemoryAreHeededWhereLittleIsLeft) {
    const auto stall = [this](uint64_t available_bytes, uint64_t us) {
        SetAvailable(available_bytes);
        levels_[0].stalled_us = *levels_[0].stalled_us + us;
        Wait();
        return supply_.ToGiveBack(800 * MIB);
    };
    levels_[0].stalled_us = 1000000;
    SetAvailable(3 * GIB);
    EXPECT_EQ(supply_.ToGiveBack(800 * MIB), 0u) << "there was nothing to compare with";
    EXPECT_EQ(stall(3 * GIB, 1000), 0u);
    EXPECT_EQ(stall(9 * GIB, 100000), 0u) << "they wait for memory of their own control groups";
    EXPECT_EQ(stall(3 * GIB, 100000), 100 * MIB);
    EXPECT_FALSE(supply_.TryTake(1, 0));
    EXPECT_EQ(stall(3 * GIB, 0), 0u);
    EXPECT_TRUE(supply_.TryTake(1, 0));
}

TEST_F(MemorySupplyTest, WhereTheSystemSaysNothingNothingIsTaken) {
    levels_.clear();
    EXPECT_FALSE(supply_.TryTake(1, 0));
    EXPECT_EQ(supply_.ToGiveBack(GIB), 0u);
    MemorySupply without_memory([]() -> std::vector<MemoryLevel> { throw std::bad_alloc(); });
    EXPECT_FALSE(without_memory.TryTake(1, 0));
    EXPECT_EQ(without_memory.ToGiveBack(800 * MIB), 100 * MIB);
}

TEST(MemorySupplyOfProcessTest, AChildHasItsOwn) {
    MemorySupply &ours = MemorySupply::OfProcess();
    EXPECT_EQ(&ours, &MemorySupply::OfProcess());
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        _exit(&MemorySupply::OfProcess() != &ours ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

} // namespace
} // namespace rawduck
