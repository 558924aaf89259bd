//! Which kind of pages new memory gets.
#include "common/memory/buffers/page_backing.hpp"

#include <gtest/gtest.h>

namespace rawduck {
namespace {

TEST(PageChoiceTest, TakesHugePagesWhereTheyAreQuick) {
    PageChoice choice;
    for (int i = 0; i < 1000; i++) {
        const bool huge = choice.NextIsHuge();
        choice.Took(huge, huge ? 200000 : 300000);
    }
    EXPECT_TRUE(choice.PrefersHuge());
    EXPECT_EQ(choice.HugeNs(), 200000u);
}

TEST(PageChoiceTest, TakesSmallPagesWhereHugeOnesAreSlow) {
    PageChoice choice;
    int huge_count = 0;
    for (int i = 0; i < 1000; i++) {
        const bool huge = choice.NextIsHuge();
        huge_count += huge ? 1 : 0;
        choice.Took(huge, huge ? 5000000 : 300000);
    }
    EXPECT_FALSE(choice.PrefersHuge());
    EXPECT_EQ(huge_count, 2 + 4) << "two at first, and trials after 64, 128, 256 and 512 more";
}

TEST(PageChoiceTest, NoticesThatHugePagesHaveBecomeQuick) {
    PageChoice choice;
    for (int i = 0; i < 3; i++) {
        const bool huge = choice.NextIsHuge();
        choice.Took(huge, huge ? 5000000 : 300000);
    }
    EXPECT_FALSE(choice.PrefersHuge());
    for (int i = 0; i < 100000 && !choice.PrefersHuge(); i++) {
        choice.Took(choice.NextIsHuge(), 200000);
    }
    EXPECT_TRUE(choice.PrefersHuge());
}

TEST(PageChoiceTest, ChunksMayOverlap) {
    PageChoice choice;
    for (int round = 0; round < 1000; round++) {
        bool huge[4];
        int huge_count = 0;
        for (bool &next : huge) {
            next = choice.NextIsHuge();
            huge_count += next ? 1 : 0;
        }
        EXPECT_TRUE(round == 0 || huge_count <= 1) << "one trial at a time";
        for (const bool next : huge) {
            choice.Took(next, next ? 5000000 : 300000);
        }
    }
    EXPECT_FALSE(choice.PrefersHuge());
}

TEST(PageChoiceTest, ATrialEndsThoughThePreferenceChangedMeanwhile) {
    PageChoice choice;
    for (int i = 0; i < 3; i++) {
        const bool huge = choice.NextIsHuge();
        choice.Took(huge, huge ? 5000000 : 300000);
    }
    while (!choice.NextIsHuge()) {
        choice.Took(false, 300000);
    }
    choice.Took(false, 300000000);
    ASSERT_TRUE(choice.PrefersHuge());
    choice.Took(true, 5000000); // the trial
    for (int i = 0; i < 100000 && choice.PrefersHuge(); i++) {
        const bool huge = choice.NextIsHuge();
        choice.Took(huge, huge ? 5000000 : 300000);
    }
    EXPECT_FALSE(choice.PrefersHuge());
}

TEST(PageChoiceTest, OneInterruptedThreadDecidesNothing) {
    PageChoice choice;
    for (const uint64_t ns : {50000000, 200000, 300000}) {
        choice.NextIsHuge();
        choice.Took(ns != 300000, ns);
    }
    EXPECT_TRUE(choice.PrefersHuge());
}

} // namespace
} // namespace rawduck
