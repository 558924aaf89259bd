#include "io/request/io_stats.hpp"

#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>

namespace rawduck {
namespace {

TEST(LatencyHistogram, IsEmptyAtFirst) {
    auto histogram = std::make_unique<LatencyHistogram>();
    EXPECT_EQ(histogram->Quantile(0.5), 0u);
    EXPECT_EQ(histogram->MaxNs(), 0u);
}

TEST(LatencyHistogram, KnowsSmallValuesExactly) {
    auto histogram = std::make_unique<LatencyHistogram>();
    for (uint64_t value = 0; value < 8; value++) {
        histogram->Record(value);
    }
    EXPECT_EQ(histogram->Quantile(0), 0u);
    EXPECT_EQ(histogram->Quantile(0.5), 3u);
    EXPECT_EQ(histogram->Quantile(1), 7u);
}

TEST(LatencyHistogram, IsWithinOneBucketOverAllMagnitudes) {
    for (int shift = 3; shift < 64; shift++) {
        for (uint64_t factor = 8; factor < 16; factor++) {
            uint64_t value = factor << (shift - 3);
            auto histogram = std::make_unique<LatencyHistogram>();
            histogram->Record(value);
            histogram->Record(UINT64_MAX);
            uint64_t bound = histogram->Quantile(0.5);
            EXPECT_GE(bound, value);
            EXPECT_LE(bound - value, value / 8) << value;
            EXPECT_EQ(histogram->Quantile(1), UINT64_MAX);
        }
    }
}

TEST(LatencyHistogram, BucketsAreThoseOfItsQuantiles) {
    auto histogram = std::make_unique<LatencyHistogram>();
    for (uint64_t value : {3u, 1000u, 1000u, 70000u}) {
        histogram->Record(value);
    }
    const auto buckets = histogram->Buckets();
    ASSERT_EQ(buckets.size(), 3u);
    EXPECT_EQ(buckets[0].upper_ns, 3u);
    EXPECT_EQ(buckets[1].upper_ns, histogram->Quantile(0.75));
    EXPECT_EQ(buckets[1].count, 2u);
    EXPECT_GE(buckets[2].upper_ns, 70000u);
    histogram->Reset();
    EXPECT_TRUE(histogram->Buckets().empty());
}

TEST(LatencyHistogram, QuantilesOfAUniformDistribution) {
    auto histogram = std::make_unique<LatencyHistogram>();
    for (uint64_t value = 1; value <= 100000; value++) {
        histogram->Record(value);
    }
    for (double quantile : {0.01, 0.5, 0.9, 0.99, 0.999}) {
        double exact = quantile * 100000;
        double found = static_cast<double>(histogram->Quantile(quantile));
        EXPECT_GE(found, exact);
        EXPECT_LE(found, exact * 1.125 + 1);
    }
    EXPECT_EQ(histogram->Quantile(1), 100000u);
}

TEST(IoStats, CountsPerOperationAndResets) {
    auto stats = std::make_unique<IoStats>();
    stats->Count(IoOperation::READ, [](IoRequest &request) {
        request.AddCommand(4096, 1, 1000);
        request.AddCommand(8192, 3, 9000);
        request.AddBounce(4096);
    });
    stats->Count(IoOperation::FLUSH, [](IoRequest &) {});
    IoCounters read = stats->Snapshot(IoOperation::READ);
    EXPECT_EQ(read.requests, 1u);
    EXPECT_EQ(read.commands, 2u);
    EXPECT_EQ(read.bytes, 12288u);
    EXPECT_EQ(read.bounce_bytes, 4096u);
    EXPECT_EQ(read.depth_sum, 4u);
    EXPECT_EQ(read.depth_max, 3u);
    EXPECT_GE(read.latency_p50_ns, 1000u);
    EXPECT_LE(read.latency_p50_ns, 1125u);
    EXPECT_EQ(read.latency_p99_ns, 9000u);
    EXPECT_EQ(read.latency_max_ns, 9000u);
    EXPECT_EQ(stats->Snapshot(IoOperation::WRITE).commands, 0u);
    EXPECT_EQ(stats->Snapshot(IoOperation::FLUSH).requests, 1u);
    stats->Reset();
    read = stats->Snapshot(IoOperation::READ);
    EXPECT_EQ(read.requests + read.commands + read.bytes + read.latency_max_ns + read.latency_p50_ns, 0u);
}

TEST(IoStats, ARequestThatFailsIsOneErrorHoweverItFails) {
    auto stats = std::make_unique<IoStats>();
    const auto failing = [](IoRequest &request) -> int {
        request.RunCommand([]() -> uint64_t { throw std::runtime_error("failed"); });
        return 1;
    };
    EXPECT_THROW(stats->Count(IoOperation::WRITE, failing), std::runtime_error);
    EXPECT_EQ(stats->Snapshot(IoOperation::WRITE).errors, 1u);
    EXPECT_EQ(stats->Snapshot(IoOperation::WRITE).requests, 1u);
    EXPECT_EQ(stats->Snapshot(IoOperation::WRITE).commands, 1u) << "it was sent";
    EXPECT_EQ(stats->Snapshot(IoOperation::WRITE).bytes, 0u);
    const bool told = stats->Count(IoOperation::DEALLOCATE, [](IoRequest &request) {
        request.Fail();
        request.Fail();
        return false;
    });
    EXPECT_FALSE(told);
    EXPECT_EQ(stats->Snapshot(IoOperation::DEALLOCATE).errors, 1u);
    EXPECT_EQ(stats->Count(IoOperation::READ,
                           [](IoRequest &request) { return request.RunCommand([] { return 512u; }); }),
              512u);
    EXPECT_EQ(stats->Snapshot(IoOperation::READ).errors, 0u);
}

TEST(IoStats, NamesEveryOperation) {
    EXPECT_STREQ(IoOperationName(IoOperation::READ), "read");
    EXPECT_STREQ(IoOperationName(IoOperation::WRITE), "write");
    EXPECT_STREQ(IoOperationName(IoOperation::FLUSH), "flush");
    EXPECT_STREQ(IoOperationName(IoOperation::DEALLOCATE), "deallocate");
}

} // namespace
} // namespace rawduck
