//! When a scan reads objects while OSDs work on others, and how OSDs are counted.
#include "ceph/pushdown/scan/reading_share.hpp"
#include "ceph/rados/connection/osd_counts.hpp"

#include <gtest/gtest.h>
#include <limits>

namespace rawduck_ceph {

TEST(ReadingShareTest, ReadsWhatTheOsdsWouldNotReachSooner) {
    // 4 answers and 4 halves in 0.6 s, so the other 4 halves and 4 objects in 0.6 s.
    EXPECT_TRUE(ShouldRead({4, 4, 4, 0.6}, 0.59));
    EXPECT_FALSE(ShouldRead({4, 4, 4, 0.6}, 0.61)) << "the OSDs have finished before that";
    EXPECT_FALSE(ShouldRead({0, 4, 4, 0.6}, 0.1)) << "nothing is left that no OSD was asked about";
}

TEST(ReadingShareTest, DoesNotWaitForeverForTheFirstAnswer) {
    EXPECT_FALSE(ShouldRead({4, 8, 0, 0.04}, 0.1));
    EXPECT_TRUE(ShouldRead({4, 8, 0, 0.06}, 0.1));
}

TEST(ReadingShareTest, ReadsNothingWhereThatIsInfinitelySlow) {
    constexpr double NEVER = std::numeric_limits<double>::infinity();
    EXPECT_FALSE(ShouldRead({1000, 4, 0, 1e6}, NEVER));
}

TEST(ReadingShareTest, LeavesToTheOsdsWhatTheyFinishSooner) {
    // 10 answers in 0.6 s, so the last 2 in 0.12 s.
    EXPECT_TRUE(ShouldReadAsked({0, 2, 10, 0.6}, 0.5, 0.5, 0.11));
    EXPECT_FALSE(ShouldReadAsked({0, 2, 10, 0.6}, 0.5, 0.5, 0.13)) << "the scan would wait for the reading";
    EXPECT_FALSE(ShouldReadAsked({0, 2, 10, 0.6}, 0.1, 0.5, 0.11)) << "it was asked about just now";
    EXPECT_FALSE(ShouldReadAsked({1, 2, 10, 0.6}, 0.5, 0.5, 0.11)) << "there is one that nobody works on";
}

TEST(ReadingShareTest, ReadsWhatAStuckOsdWasAskedAbout) {
    EXPECT_FALSE(ShouldReadAsked({0, 1, 10, 0.9}, 0.9, 0.5, 0.3));
    EXPECT_TRUE(ShouldReadAsked({0, 1, 10, 1.0}, 1.0, 0.5, 0.3));
    EXPECT_TRUE(ShouldReadAsked({0, 4, 0, 0.3}, 0.3, 0, 0.3)) << "nothing tells how long answers take";
}

TEST(ReadingShareTest, OsdsHaveMostAnswersUnlessManyObjectsWereRead) {
    EXPECT_TRUE(HasMostAnswers(6, 6, 0));
    EXPECT_TRUE(HasMostAnswers(6, 3, 3));
    EXPECT_FALSE(HasMostAnswers(6, 2, 4));
    EXPECT_FALSE(HasMostAnswers(6, 5, 0)) << "one was refused";
}

TEST(OsdCountsTest, KnowsWhichOsdsAreElsewhere) {
    const std::string dump =
        "epoch 13\n"
        "max_osd 4\n"
        "osd.0 up   in  weight 1 up_from 5 [v2:10.0.0.1:6800/7,v1:10.0.0.1:6801/7] [v2:10.1.0.1:6802/7] "
        "exists,up\n"
        "osd.1 up   in  weight 1 up_from 5 [v2:10.0.0.2:6800/7,v1:10.0.0.2:6801/7] [v2:10.1.0.2:6802/7] "
        "exists,up\n"
        "osd.2 down in  weight 1 up_from 5 [v2:10.0.0.3:6800/7,v1:10.0.0.3:6801/7] exists\n"
        "osd.3 up   in  weight 1 up_from 5 [v2:[fe80::3]:6800/7] [v2:[fe80::4]:6802/7] exists,up\n"
        "pg_temp 1.0 [0]\n";
    EXPECT_EQ(CountOsds(dump, {}).up, 3u);
    EXPECT_EQ(CountOsds(dump, {}).elsewhere, 3u);
    EXPECT_EQ(CountOsds(dump, {"10.0.0.2", "10.1.0.1"}).elsewhere, 2u) << "the public address counts";
    EXPECT_EQ(CountOsds(dump, {"10.0.0.1", "10.0.0.2", "fe80::3"}).elsewhere, 0u);
    EXPECT_EQ(CountOsds("", {}).up, 0u);
}

TEST(OsdCountsTest, ThisHostHasALoopbackAddress) {
    EXPECT_EQ(OwnAddresses().count("127.0.0.1"), 1u);
}

} // namespace rawduck_ceph
