#include "volume/spill/spill_order.hpp"

#include <gtest/gtest.h>

namespace rawduck {
namespace {

constexpr uint32_t ORDERED_BLOCK = 64 * KIB;

std::vector<uint64_t> Offsets(const std::vector<DeviceRange> &ranges) {
    std::vector<uint64_t> offsets;
    for (const DeviceRange &range : ranges) {
        EXPECT_EQ(range.length, ORDERED_BLOCK);
        offsets.push_back(range.device_offset / ORDERED_BLOCK);
    }
    return offsets;
}

//! Blocks at descending offsets, to tell the order of writing from that of the target.
SpillOrder Descending(uint64_t count) {
    SpillOrder order;
    for (uint64_t i = count; i-- > 0;) {
        order.Written(i * ORDERED_BLOCK, ORDERED_BLOCK);
    }
    return order;
}

using Numbers = std::vector<uint64_t>;

TEST(SpillOrderTest, TheNextAreThoseWrittenNext) {
    SpillOrder order = Descending(20);
    EXPECT_EQ(Offsets(order.Read(19 * ORDERED_BLOCK)), (Numbers{18, 17, 16, 15}));
    EXPECT_EQ(Offsets(order.Read(2 * ORDERED_BLOCK)), (Numbers{1, 0}));
    EXPECT_EQ(Offsets(order.Read(0)), Numbers{});
    EXPECT_EQ(order.Size(), 17u);
}

TEST(SpillOrderTest, WhatWasReadForgottenOrWrittenAnewIsNotExpected) {
    SpillOrder order = Descending(20);
    order.Read(18 * ORDERED_BLOCK);
    EXPECT_EQ(Offsets(order.Read(18 * ORDERED_BLOCK)), Numbers{}) << "read before";
    order.Forget(16 * ORDERED_BLOCK + 1, ORDERED_BLOCK); // touches two
    order.Forget(15 * ORDERED_BLOCK, 1);
    order.Written(15 * ORDERED_BLOCK, ORDERED_BLOCK);
    EXPECT_EQ(Offsets(order.Read(19 * ORDERED_BLOCK)), (Numbers{14, 13, 12, 11}));
    EXPECT_EQ(Offsets(order.Read(0)), Numbers{15});
}

TEST(SpillOrderTest, WhatWasWrittenMuchLaterIsNotExpected) {
    SpillOrder order = Descending(20);
    order.Forget(8 * ORDERED_BLOCK, 11 * ORDERED_BLOCK);
    EXPECT_EQ(Offsets(order.Read(19 * ORDERED_BLOCK)), Numbers{});
}

TEST(SpillOrderTest, OfTooManyTheOldestAreForgotten) {
    SpillOrder order = Descending(SpillOrder::BLOCKS_MAX + 2);
    EXPECT_EQ(order.Size(), SpillOrder::BLOCKS_MAX);
    EXPECT_EQ(Offsets(order.Read((SpillOrder::BLOCKS_MAX + 1) * ORDERED_BLOCK)), Numbers{});
    EXPECT_EQ(Offsets(order.Read(3 * ORDERED_BLOCK)), (Numbers{2, 1, 0}));
    order.Forget(0, (SpillOrder::BLOCKS_MAX + 2) * ORDERED_BLOCK);
    EXPECT_EQ(order.Size(), 0u);
    order.Written(0, ORDERED_BLOCK);
    EXPECT_EQ(order.Size(), 1u);
}

} // namespace
} // namespace rawduck
