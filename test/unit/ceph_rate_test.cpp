//! How fast reads and calls went lately, with a clock that the test moves; how many calls are out at a time.
#include "ceph/client/call_window.hpp"
#include "ceph/client/running_rate.hpp"

#include <gtest/gtest.h>

namespace rawduck {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t MIB = 1 << 20;

class RunningRateTest : public testing::Test {
  protected:
    void Operation(uint64_t bytes, RunningRate::Clock::duration takes, uint64_t cpu_us = 0) {
        rate.Started(now);
        now += takes;
        rate.Ended(bytes, cpu_us, now);
    }
    //! 0: not known.
    double BytesPerSecond() {
        RunningRate::Cost cost;
        return rate.Known(cost, now) ? 1 / cost.wall_s_per_byte : 0;
    }

    RunningRate rate;
    RunningRate::Clock::time_point now = RunningRate::Clock::time_point() + 1000h;
};

} // namespace

TEST_F(RunningRateTest, OfLittleNothingIsKnown) {
    EXPECT_EQ(BytesPerSecond(), 0);
    Operation(3 * MIB, 1s);
    EXPECT_EQ(BytesPerSecond(), 0);
    Operation(3 * MIB, 2s);
    EXPECT_DOUBLE_EQ(BytesPerSecond(), 2 * MIB);
}

TEST_F(RunningRateTest, OperationsSideBySideAddUpAndPausesDoNotCount) {
    rate.Started(now);
    rate.Started(now);
    now += 1s;
    rate.Ended(8 * MIB, 0, now);
    now += 1s;
    rate.Ended(8 * MIB, 0, now);
    EXPECT_DOUBLE_EQ(BytesPerSecond(), 8 * MIB);
    now += 5s;
    EXPECT_DOUBLE_EQ(BytesPerSecond(), 8 * MIB);
}

TEST_F(RunningRateTest, WhatIsOldIsForgotten) {
    Operation(100 * MIB, 1s);
    now += RunningRate::PERIOD;
    Operation(100 * MIB, 4s);
    EXPECT_DOUBLE_EQ(BytesPerSecond(), 40 * MIB);
    now += RunningRate::PERIOD;
    EXPECT_DOUBLE_EQ(BytesPerSecond(), 25 * MIB);
    now += RunningRate::PERIOD * 3;
    EXPECT_EQ(BytesPerSecond(), 0);
}

TEST_F(RunningRateTest, ProcessorTimeIsCountedBesides) {
    Operation(10 * MIB, 1s, 500000);
    RunningRate::Cost cost;
    ASSERT_TRUE(rate.Known(cost, now));
    EXPECT_DOUBLE_EQ(cost.cpu_s_per_byte * 10 * MIB, 0.5);
}

namespace {

//! As many calls as there is room for. Returns how many.
size_t Fill(CallWindow &window, size_t most = 1000) {
    size_t calls = 0;
    while (window.TryEnter(most)) {
        calls++;
    }
    return calls;
}

} // namespace

TEST(CallWindowTest, ItNarrowsWhereOsdsAreBusyButNeverCloses) {
    CallWindow window;
    EXPECT_EQ(Fill(window), 6u);
    window.Leave(true);
    EXPECT_EQ(Fill(window), 0u) << "one call less fits";
    for (int i = 0; i < 5; i++) {
        window.Leave(true);
    }
    EXPECT_EQ(Fill(window), 2u);
}

TEST(CallWindowTest, ItWidensWhereAllIsAnswered) {
    CallWindow window;
    for (int i = 0; i < 100; i++) {
        Fill(window);
        window.Leave(false);
    }
    EXPECT_GT(window.Size(), 20u);
}

TEST(CallWindowTest, ItDoesNotWidenByCallsThatAreFew) {
    CallWindow window;
    for (int i = 0; i < 100; i++) {
        EXPECT_TRUE(window.TryEnter(1));
        EXPECT_FALSE(window.TryEnter(1)) << "the setting's limit";
        window.Leave(false);
    }
    EXPECT_EQ(window.Size(), 6u);
}

} // namespace rawduck
