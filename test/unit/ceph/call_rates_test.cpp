//! Rates of reads and calls with a simulated clock, and the window of calls in flight.
#include "ceph/pushdown/feedback/call_window.hpp"
#include "ceph/pushdown/feedback/running_rate.hpp"

#include <gtest/gtest.h>

namespace rawduck_ceph {
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
    //! 0 when unknown.
    double BytesPerSecond() {
        RunningRate::Cost cost;
        return rate.TryGet(cost, now) ? 1 / cost.wall_s_per_byte : 0;
    }

    double InFlight() {
        RunningRate::Cost cost;
        return rate.TryGet(cost, now) ? cost.in_flight : 0;
    }

    RunningRate rate;
    RunningRate::Clock::time_point now = RunningRate::Clock::time_point() + 1000h;
};

} // namespace

TEST_F(RunningRateTest, IsUnknownUntilEnoughWasTransferred) {
    EXPECT_EQ(BytesPerSecond(), 0);
    Operation(3 * MIB, 1s);
    EXPECT_EQ(BytesPerSecond(), 0);
    Operation(3 * MIB, 2s);
    EXPECT_DOUBLE_EQ(BytesPerSecond(), 2 * MIB);
}

TEST_F(RunningRateTest, ConcurrentOperationsAddUpAndPausesDoNotCount) {
    rate.Started(now);
    rate.Started(now);
    now += 1s;
    rate.Ended(8 * MIB, 0, now);
    now += 1s;
    rate.Ended(8 * MIB, 0, now);
    EXPECT_DOUBLE_EQ(BytesPerSecond(), 8 * MIB);
    now += 5s;
    EXPECT_DOUBLE_EQ(BytesPerSecond(), 8 * MIB);
    EXPECT_DOUBLE_EQ(InFlight(), 1.5);
}

TEST_F(RunningRateTest, OperationsWithoutWorkTakeNoTime) {
    Operation(8 * MIB, 1s);
    rate.Started(now);
    rate.Started(now);
    now += 3s;
    rate.EndedWithoutWork(now);
    rate.EndedWithoutWork(now);
    EXPECT_DOUBLE_EQ(BytesPerSecond(), 8 * MIB);
    EXPECT_DOUBLE_EQ(InFlight(), 1);
    // With others, they wait for what these do.
    rate.Started(now);
    rate.Started(now);
    now += 1s;
    rate.Ended(4 * MIB, 0, now);
    now += 1s;
    rate.EndedWithoutWork(now);
    EXPECT_DOUBLE_EQ(BytesPerSecond(), 4 * MIB);
}

TEST_F(RunningRateTest, OldPeriodsExpire) {
    Operation(100 * MIB, 1s);
    now += RunningRate::PERIOD;
    Operation(100 * MIB, 4s);
    EXPECT_DOUBLE_EQ(BytesPerSecond(), 40 * MIB);
    now += RunningRate::PERIOD;
    EXPECT_DOUBLE_EQ(BytesPerSecond(), 25 * MIB);
    now += RunningRate::PERIOD * 3;
    EXPECT_EQ(BytesPerSecond(), 0);
}

TEST_F(RunningRateTest, ATrialHoldsUntilMeasuredOrExpired) {
    RunningRate::Cost cost{1, 2};
    EXPECT_FALSE(rate.TryGet(cost, now));
    EXPECT_EQ(cost.wall_s_per_byte, 1) << "left as it was";
    rate.SetTrial(1e-6, now);
    ASSERT_TRUE(rate.TryGet(cost, now));
    EXPECT_DOUBLE_EQ(cost.wall_s_per_byte, 1e-6);
    EXPECT_EQ(cost.cpu_s_per_byte, 0);
    now += RunningRate::PERIOD;
    EXPECT_FALSE(rate.TryGet(cost, now));
    rate.SetTrial(1e-6, now);
    Operation(10 * MIB, 1s);
    ASSERT_TRUE(rate.TryGet(cost, now));
    EXPECT_DOUBLE_EQ(cost.wall_s_per_byte * 10 * MIB, 1);
}

TEST_F(RunningRateTest, ProcessorTimeIsMeasured) {
    Operation(10 * MIB, 1s, 500000);
    RunningRate::Cost cost;
    ASSERT_TRUE(rate.TryGet(cost, now));
    EXPECT_DOUBLE_EQ(cost.cpu_s_per_byte * 10 * MIB, 0.5);
}

namespace {

//! Fills the window. Returns the number of calls.
size_t Fill(CallWindow &window, size_t most = 1000) {
    size_t calls = 0;
    while (window.TryEnter(most)) {
        calls++;
    }
    return calls;
}

} // namespace

TEST(CallWindowTest, ShrinksWhenOsdsAreBusyDownToItsMinimum) {
    CallWindow window;
    EXPECT_EQ(Fill(window), 8u);
    window.Leave(true);
    EXPECT_EQ(Fill(window), 0u) << "fewer fit";
    for (int i = 0; i < 20; i++) {
        window.Leave(true);
        Fill(window);
    }
    EXPECT_EQ(window.Size(), 4u);
    while (window.TryEnter(1000)) {
    }
    for (int i = 0; i < 4; i++) {
        window.Leave(true);
    }
    EXPECT_EQ(Fill(window), 4u);
}

TEST(CallWindowTest, GrowsWhenNoOsdIsBusy) {
    CallWindow window;
    for (int i = 0; i < 100; i++) {
        Fill(window);
        window.Leave(false);
    }
    EXPECT_GT(window.Size(), 20u);
}

TEST(CallWindowTest, DoesNotGrowWhenItIsNotFull) {
    CallWindow window;
    for (int i = 0; i < 100; i++) {
        EXPECT_TRUE(window.TryEnter(1));
        EXPECT_FALSE(window.TryEnter(1)) << "the setting's limit";
        window.Leave(false);
    }
    EXPECT_EQ(window.Size(), 8u);
}

} // namespace rawduck_ceph
