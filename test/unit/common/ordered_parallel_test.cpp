#include "common/process/ordered_parallel.hpp"

#include <atomic>
#include <gtest/gtest.h>
#include <stdexcept>
#include <vector>

namespace rawduck {
namespace {

TEST(OrderedParallelTest, AllAreTakenInTheirOrder) {
    for (const uint64_t count : {0u, 1u, 31u, 32u, 33u, 5000u}) {
        for (const uint64_t at_a_time : {1u, 32u}) {
            std::vector<uint64_t> made(count), taken;
            OrderedParallel(
                count, at_a_time, [&](uint64_t i) { made[i] = i * i + 1; },
                [&](uint64_t i) {
                    EXPECT_EQ(made[i], i * i + 1);
                    taken.push_back(i);
                });
            ASSERT_EQ(taken.size(), count);
            for (uint64_t i = 0; i < count; i++) {
                EXPECT_EQ(taken[i], i);
            }
        }
    }
}

TEST(OrderedParallelTest, WhatMakingThrowsIsThrown) {
    for (const uint64_t failing : {0u, 700u, 1999u}) {
        uint64_t taken = 0;
        const auto run = [&] {
            OrderedParallel(
                2000, 16,
                [&](uint64_t i) {
                    if (i == failing) {
                        throw std::runtime_error("broken");
                    }
                },
                [&](uint64_t) { taken++; });
        };
        EXPECT_THROW(run(), std::runtime_error);
        EXPECT_LE(taken, failing);
    }
}

TEST(OrderedParallelTest, WhatTakingThrowsEndsMaking) {
    std::atomic<uint64_t> made{0};
    const auto run = [&] {
        OrderedParallel(
            1'000'000, 16, [&](uint64_t) { made++; },
            [](uint64_t i) {
                if (i == 40) {
                    throw std::runtime_error("enough");
                }
            });
    };
    EXPECT_THROW(run(), std::runtime_error);
    EXPECT_LE(made, 1'000'000u);
}

} // namespace
} // namespace rawduck
