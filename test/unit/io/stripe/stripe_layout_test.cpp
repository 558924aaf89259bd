#include "io/stripe/stripe_layout.hpp"

#include <gtest/gtest.h>

namespace rawduck {
namespace {

StripeLayout LayoutOf(size_t members, uint64_t chunk_bytes) {
    Stripe stripe;
    stripe.chunk_bytes = chunk_bytes;
    stripe.data_start = MIB;
    stripe.members.resize(members);
    return StripeLayout(stripe);
}

} // namespace

TEST(StripeLayoutTest, ChunksGoRound) {
    const StripeLayout layout = LayoutOf(3, 16 * KIB);
    EXPECT_EQ(layout.PlaceOf(0).member, 0u);
    EXPECT_EQ(layout.PlaceOf(0).offset, MIB);
    EXPECT_EQ(layout.PlaceOf(16 * KIB).member, 1u);
    EXPECT_EQ(layout.PlaceOf(16 * KIB).offset, MIB);
    EXPECT_EQ(layout.PlaceOf(48 * KIB + 5).member, 0u);
    EXPECT_EQ(layout.PlaceOf(48 * KIB + 5).offset, MIB + 16 * KIB + 5);
}

TEST(StripeLayoutTest, EachByteHasOnePlaceAndThatByte) {
    for (const size_t members : {2u, 3u, 16u}) {
        const StripeLayout layout = LayoutOf(members, 16 * KIB);
        std::vector<uint64_t> before(members, 0);
        for (uint64_t offset = 0; offset < 40 * 16 * KIB; offset += 512) {
            const StripeLayout::Place place = layout.PlaceOf(offset);
            EXPECT_EQ(layout.OffsetOf(place), offset);
            EXPECT_EQ(place.offset, layout.data_start + before[place.member]) << "without gaps";
            for (size_t i = 0; i < members; i++) {
                ASSERT_EQ(layout.BytesBefore(offset, i), before[i]) << offset;
            }
            before[place.member] += 512;
        }
    }
}

TEST(StripeLayoutTest, TheCapacityLeavesRoomForBothHeaders) {
    const StripeLayout layout = LayoutOf(2, 16 * KIB);
    EXPECT_EQ(layout.CapacityOf(0), 0u);
    EXPECT_EQ(layout.CapacityOf(MIB + 16 * KIB), 0u);
    EXPECT_EQ(layout.CapacityOf(MIB + 16 * KIB + 4096), 32 * KIB);
    EXPECT_EQ(layout.CapacityOf(MIB + 32 * KIB + 4095), 32 * KIB);
}

} // namespace rawduck
