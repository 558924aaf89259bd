//! Entries of a ring, which are used in turn.
#include "io/engine/ring/ring_entries.hpp"
#include "support/test_support.hpp"

namespace rawduck {
namespace {

TEST(RingEntries, ARingHasSeveralForEachCommandInFlight) {
    EXPECT_EQ(RingEntries::CountFor(1, 4096), 4u);
    EXPECT_EQ(RingEntries::CountFor(32, 4096), 128u);
    EXPECT_EQ(RingEntries::CountFor(33, 4096), 256u);
    EXPECT_EQ(RingEntries::CountFor(4096, 4096), 4096u) << "no more than can be had";
}

TEST(RingEntries, OneThatIsInUseStandsInTheWayOfTheCommandARoundLater) {
    RingEntries entries(4);
    const uint32_t slow = entries.Take();
    for (int others = 0; others < 3; others++) {
        ASSERT_TRUE(entries.NextIsFree());
        entries.Give(entries.Take());
    }
    EXPECT_FALSE(entries.NextIsFree());
    entries.Give(slow);
    EXPECT_TRUE(entries.NextIsFree());
    EXPECT_EQ(entries.Take(), slow);
}

TEST(RingEntries, AllOfANewRingAreFree) {
    RingEntries entries(2);
    entries.Take();
    entries.Take();
    ASSERT_FALSE(entries.NextIsFree());
    entries.Reset();
    EXPECT_TRUE(entries.NextIsFree());
}

} // namespace
} // namespace rawduck
