#include "common/memory/recent_growth.hpp"

#include <gtest/gtest.h>

namespace rawduck {
namespace {

using std::chrono::milliseconds;

class RecentGrowthTest : public ::testing::Test {
  protected:
    bool NoteAt(int ms, uint64_t value) { return growth_.Note(value, start_ + milliseconds(ms)); }

    const RecentGrowth::Clock::time_point start_ = RecentGrowth::Clock::now();
    RecentGrowth growth_{milliseconds(300)};
};

TEST_F(RecentGrowthTest, WhatWasThereAtFirstHasNotGrown) {
    EXPECT_FALSE(NoteAt(0, 1000));
    EXPECT_FALSE(NoteAt(1, 1000));
}

TEST_F(RecentGrowthTest, IsSeenAtOnceAndForgottenInTime) {
    EXPECT_FALSE(NoteAt(0, 0));
    EXPECT_TRUE(NoteAt(10, 1));
    EXPECT_TRUE(NoteAt(20, 1));
    EXPECT_TRUE(NoteAt(309, 1));
    EXPECT_FALSE(NoteAt(310, 1));
}

TEST_F(RecentGrowthTest, WhatHasGrownWhileNobodyLookedMayBeLongAgo) {
    EXPECT_FALSE(NoteAt(0, 0));
    EXPECT_FALSE(NoteAt(300, 1000));
    EXPECT_TRUE(NoteAt(310, 1001));
    EXPECT_FALSE(NoteAt(3000, 2000));
}

TEST_F(RecentGrowthTest, EachGrowthBeginsTheTimeAnew) {
    EXPECT_FALSE(NoteAt(0, 0));
    EXPECT_TRUE(NoteAt(10, 1));
    EXPECT_TRUE(NoteAt(200, 2));
    EXPECT_TRUE(NoteAt(499, 2));
    EXPECT_FALSE(NoteAt(500, 2));
    EXPECT_TRUE(NoteAt(600, 3));
}

TEST_F(RecentGrowthTest, WhatHasShrunkGrowsFromThere) {
    EXPECT_FALSE(NoteAt(0, 1000));
    EXPECT_FALSE(NoteAt(10, 10));
    EXPECT_TRUE(NoteAt(20, 11));
}

} // namespace
} // namespace rawduck
