//! When a query is pushed: by sizes until speeds are measured, then by expected times.
#include "ceph/pushdown/decision/offload_decision.hpp"

#include <gtest/gtest.h>

namespace rawduck_ceph {
namespace {

constexpr uint64_t KIB = 1024, MIB = 1024 * KIB;

//! Ten objects with 5 MiB in the columns that are needed, and replies of `answer_bytes` each.
ScanEstimate Ten(uint64_t answer_bytes) {
    ScanEstimate estimate;
    estimate.objects = 10;
    estimate.column_bytes = 50 * MIB;
    estimate.row_bytes = 16;
    estimate.rows_out = answer_bytes / estimate.row_bytes * estimate.objects;
    return estimate;
}

MeasuredSpeeds Link(double bytes_per_s) {
    MeasuredSpeeds speeds;
    speeds.reads_known = true;
    speeds.read_s_per_byte = 1 / bytes_per_s;
    speeds.osds_known = true;
    speeds.osd_s_per_byte = 2e-9;
    speeds.osd_calls = 8;
    speeds.client_cpu_s_per_byte = 4e-9;
    speeds.client_threads = speeds.client_processors = 8;
    return speeds;
}

const MeasuredSpeeds UNKNOWN;
constexpr double GIGABIT = 120e6, LOOPBACK = 2e9;

} // namespace

TEST(DecisionTest, SizesDecideWithoutMeasurements) {
    EXPECT_TRUE(Decide({Ten(2 * MIB), UNKNOWN, REPLY_SIZE_UNKNOWN}).offload);
    EXPECT_FALSE(Decide({Ten(3 * MIB), UNKNOWN, REPLY_SIZE_UNKNOWN}).offload);
    EXPECT_TRUE(Decide({Ten(3 * MIB), UNKNOWN, 10 * KIB}).offload) << "earlier answers were small";
    EXPECT_FALSE(Decide({Ten(2 * MIB), UNKNOWN, 3 * MIB}).offload) << "earlier answers were large";
}

TEST(DecisionTest, RefusedAnswersAreAskedForAgainOnASlowerLink) {
    EXPECT_EQ(Decide({Ten(2 * MIB), UNKNOWN, REPLY_SIZE_UNKNOWN}).reply_bytes_max, 5 * MIB / 2);
    const uint64_t refused = RefusedReplyBytes(5 * MIB / 2);
    EXPECT_FALSE(Decide({Ten(2 * MIB), UNKNOWN, refused}).offload);
    EXPECT_FALSE(Decide({Ten(2 * MIB), Link(LOOPBACK), refused}).offload);
    const Decision again = Decide({Ten(2 * MIB), Link(GIGABIT), refused});
    EXPECT_TRUE(again.offload);
    EXPECT_GT(again.reply_bytes_max, refused) << "or it would be refused again";
    EXPECT_FALSE(Decide({Ten(2 * MIB), Link(GIGABIT), RefusedReplyBytes(again.reply_bytes_max)}).offload);
    EXPECT_GE(RefusedReplyBytes(1), KEPT_REPLY_BYTES_MAX) << "nobody has kept it";
}

TEST(DecisionTest, AnswersThatTheClassWouldRefuseAreNotAskedFor) {
    ScanEstimate estimate = Ten(REPLY_BYTES_MAX);
    estimate.column_bytes = 10 * 4 * REPLY_BYTES_MAX;
    EXPECT_TRUE(Decide({estimate, Link(GIGABIT), REPLY_SIZE_UNKNOWN}).offload);
    EXPECT_TRUE(Decide({Ten(16), Link(GIGABIT), REPLY_BYTES_MAX / 16}).offload);
    EXPECT_FALSE(Decide({estimate, Link(GIGABIT), RefusedReplyBytes(REPLY_BYTES_MAX)}).offload);
    estimate.rows_out += estimate.objects;
    const Decision decision = Decide({estimate, Link(GIGABIT), REPLY_SIZE_UNKNOWN});
    EXPECT_FALSE(decision.offload);
    EXPECT_EQ(decision.why.find("answers of about 64 MiB are too large"), 0u) << decision.why;
}

TEST(DecisionTest, KeptAnswersAreAskedFor) {
    DecisionInputs inputs{Ten(10 * KIB), Link(LOOPBACK), REPLY_SIZE_UNKNOWN};
    inputs.speeds.osd_s_per_byte = 20e-9;
    EXPECT_FALSE(Decide(inputs).offload);
    inputs.kept = {true, 12345, true};
    const Decision decision = Decide(inputs);
    EXPECT_TRUE(decision.offload);
    EXPECT_TRUE(decision.expects_kept);
    EXPECT_EQ(decision.reply_bytes_max, 12345u) << "or the request would be another one";
    EXPECT_TRUE(decision.lz4);
    inputs.speeds = UNKNOWN;
    EXPECT_FALSE(LinkSpeedMatters(inputs));
    inputs.earlier_reply_bytes = 60 * KIB;
    inputs.estimate.column_bytes = 10 * 60 * KIB;
    EXPECT_TRUE(Decide(inputs).expects_kept);
    inputs.estimate.column_bytes = 10 * 60 * KIB - 10;
    EXPECT_FALSE(Decide(inputs).expects_kept) << "reading moves less";
    inputs.earlier_reply_bytes = 16 * KIB;
    inputs.estimate.column_bytes = 10;
    EXPECT_TRUE(Decide(inputs).expects_kept) << "it is small in any case";
    inputs.estimate.column_bytes = 0;
    EXPECT_FALSE(Decide(inputs).offload) << "the footers alone have the answer";
}

TEST(DecisionTest, WhatHasFailedIsRead) {
    DecisionInputs inputs{Ten(10 * KIB), Link(GIGABIT), REPLY_SIZE_UNKNOWN};
    EXPECT_TRUE(Decide(inputs).offload);
    inputs.has_failed = true;
    inputs.kept = {true, 12345, true};
    EXPECT_FALSE(Decide(inputs).offload);
    inputs.speeds = UNKNOWN;
    inputs.kept = {};
    EXPECT_FALSE(LinkSpeedMatters(inputs));
}

TEST(DecisionTest, LargerRepliesArePushedOnASlowLink) {
    const Decision decision = Decide({Ten(3 * MIB), Link(GIGABIT), REPLY_SIZE_UNKNOWN});
    EXPECT_TRUE(decision.offload);
    EXPECT_NE(decision.why.find("reading would take about 0.437 s, pushing 0.14 s with compressed answers"),
              std::string::npos)
        << decision.why;
    EXPECT_TRUE(decision.lz4);
    // 1 / 240e6 s per byte on the link, and 2e-9 s of one of 8 processors.
    EXPECT_NEAR(static_cast<double>(decision.reply_bytes_max), 10.0 * MIB / (1 + 240e6 * 2e-9 / 8), 1000)
        << "as long as reading";
    EXPECT_FALSE(Decide({Ten(10 * MIB), Link(GIGABIT), REPLY_SIZE_UNKNOWN}).offload);
    EXPECT_FALSE(Decide({Ten(3 * MIB), Link(LOOPBACK), REPLY_SIZE_UNKNOWN}).lz4);
}

TEST(DecisionTest, ReadsWhereOsdsAreSlowerThanTheLink) {
    MeasuredSpeeds speeds = Link(LOOPBACK);
    speeds.osd_s_per_byte = 20e-9; // busy with others, say
    EXPECT_FALSE(Decide({Ten(10 * KIB), speeds, REPLY_SIZE_UNKNOWN}).offload);
    speeds.osd_s_per_byte = 0.4e-9;
    EXPECT_TRUE(Decide({Ten(10 * KIB), speeds, REPLY_SIZE_UNKNOWN}).offload);
}

TEST(DecisionTest, SizesDecideWhereTimesAreSimilar) {
    EXPECT_TRUE(Decide({Ten(10 * KIB), Link(500e6), REPLY_SIZE_UNKNOWN}).offload);
    EXPECT_FALSE(Decide({Ten(4 * MIB), Link(500e6), REPLY_SIZE_UNKNOWN}).offload);
}

TEST(DecisionTest, UnmeasuredOsdsCountAsTwoProcessors) {
    MeasuredSpeeds speeds = Link(GIGABIT);
    speeds.osds_known = false;
    speeds.osd_s_per_byte = 0;
    speeds.client_cpu_s_per_byte = 3e-9; // OSDs take twice as much
    speeds.client_threads = speeds.client_processors = 2;
    EXPECT_TRUE(Decide({Ten(4 * MIB), speeds, REPLY_SIZE_UNKNOWN}).offload) << "it saves a fifth";
    EXPECT_FALSE(Decide({Ten(5 * MIB), speeds, REPLY_SIZE_UNKNOWN}).offload);
    ScanEstimate one = Ten(16);
    one.objects = 1;
    EXPECT_NE(Decide({one, speeds, REPLY_SIZE_UNKNOWN}).why.find("pushing 0.316 s"), std::string::npos)
        << "one object is worked on by one";
    speeds.read_s_per_byte = 1 / LOOPBACK;
    EXPECT_FALSE(Decide({Ten(16), speeds, REPLY_SIZE_UNKNOWN}).offload)
        << "two OSDs are slower than the client";
    speeds.client_threads = speeds.client_processors = 1;
    speeds.osd_processors = 6;
    EXPECT_TRUE(Decide({Ten(16), speeds, REPLY_SIZE_UNKNOWN}).offload);
}

TEST(DecisionTest, UnmeasuredOsdsOfOtherHostsHaveAProcessorEach) {
    MeasuredSpeeds speeds = Link(LOOPBACK);
    speeds.osds_known = false;
    speeds.osd_s_per_byte = 0;
    speeds.client_threads = speeds.client_processors = 2;
    speeds.osd_processors = 6;
    ScanEstimate estimate = Ten(16);
    EXPECT_FALSE(Decide({estimate, speeds, REPLY_SIZE_UNKNOWN}).offload);
    speeds.osd_processors = 20;
    EXPECT_TRUE(Decide({estimate, speeds, REPLY_SIZE_UNKNOWN}).offload);
    speeds.osd_processors = 6;
    EXPECT_FALSE(Decide({estimate, speeds, REPLY_SIZE_UNKNOWN}).share) << "rows in order";
    estimate.any_order = true;
    const Decision shared = Decide({estimate, speeds, REPLY_SIZE_UNKNOWN});
    EXPECT_TRUE(shared.offload && shared.share) << "both work";
    speeds.shares_processors = true;
    speeds.osd_processors = 2;
    const Decision here = Decide({estimate, speeds, REPLY_SIZE_UNKNOWN});
    EXPECT_FALSE(here.offload || here.share) << "both would work with the same processors";
}

TEST(DecisionTest, RepliesAndUnevenOsdsCostTime) {
    MeasuredSpeeds speeds = Link(1.2e9);
    speeds.osds_known = false;
    speeds.osd_s_per_byte = 0;
    speeds.client_cpu_s_per_byte = 3e-9; // OSDs take twice as much
    speeds.client_threads = speeds.client_processors = 1;
    speeds.osd_processors = 6;
    // Of ten objects at random, the fullest of six OSDs has 3.4.
    EXPECT_NE(Decide({Ten(16), speeds, REPLY_SIZE_UNKNOWN})
                  .why.find("reading would take about 0.157 s, pushing 0.108 s"),
              std::string::npos);
    EXPECT_TRUE(Decide({Ten(16), speeds, REPLY_SIZE_UNKNOWN}).offload);
    EXPECT_FALSE(Decide({Ten(2 * MIB), speeds, REPLY_SIZE_UNKNOWN}).offload)
        << "to be made and to be decoded";
    speeds.osd_processor_share = 0.5;
    EXPECT_FALSE(Decide({Ten(16), speeds, REPLY_SIZE_UNKNOWN}).offload) << "half as fast";
}

TEST(DecisionTest, SharedObjectsAreReadOneByOne) {
    MeasuredSpeeds speeds = Link(LOOPBACK);
    speeds.osds_known = false;
    speeds.osd_s_per_byte = 0;
    speeds.client_threads = speeds.client_processors = 2;
    speeds.osd_processors = 2;
    ScanEstimate estimate = Ten(16);
    estimate.any_order = true;
    const Decision shared = Decide({estimate, speeds, REPLY_SIZE_UNKNOWN});
    EXPECT_NEAR(shared.read_object_s, 2 * 1.5 * 5.0 * MIB * 4e-9 / 2, 1e-6);
    speeds.osd_processors = 3;
    EXPECT_FALSE(Decide({estimate, speeds, REPLY_SIZE_UNKNOWN}).offload)
        << "hardly faster than a scan of them all";
}

TEST(DecisionTest, WhatIsReadAndWhatIsAnsweredShareTheLink) {
    // Without a filter, an answer has as many bytes on the link as what it was made of.
    ScanEstimate estimate = Ten(10 * MIB);
    estimate.any_order = true;
    const Decision same = Decide({estimate, Link(GIGABIT), REPLY_SIZE_UNKNOWN});
    EXPECT_NE(same.why.find("reading would take about 0.437 s, pushing 0.441 s"), std::string::npos)
        << same.why;
    EXPECT_FALSE(same.offload);
    // Four of ten answers, which are small, take as long as reading six.
    estimate = Ten(16);
    estimate.any_order = true;
    MeasuredSpeeds speeds = Link(GIGABIT);
    speeds.osd_s_per_byte = 12e-9;
    EXPECT_NE(Decide({estimate, speeds, REPLY_SIZE_UNKNOWN}).why.find("pushing 0.263 s"), std::string::npos);
    estimate.objects = 1;
    EXPECT_NE(Decide({estimate, speeds, REPLY_SIZE_UNKNOWN}).why.find("pushing 1.26 s"), std::string::npos)
        << "an object is not divided, nor can two OSDs work on it";
}

TEST(DecisionTest, MeasuredOsdsCountByHowManyOfThemWorked) {
    MeasuredSpeeds speeds = Link(GIGABIT);
    speeds.osd_s_per_byte = 12e-9;
    speeds.osd_processors = 6;
    speeds.osd_calls = 24;
    EXPECT_FALSE(Decide({Ten(16), speeds, REPLY_SIZE_UNKNOWN}).offload) << "all of them need 0.63 s";
    speeds.osd_calls = 1;
    const Decision six = Decide({Ten(16), speeds, REPLY_SIZE_UNKNOWN});
    EXPECT_TRUE(six.offload);
    EXPECT_NE(six.why.find("pushing 0.106 s"), std::string::npos) << "one was measured: " << six.why;
    speeds.osd_calls = 24;
    speeds.osd_s_per_byte = 2e-9;
    ScanEstimate one = Ten(16);
    one.objects = 1;
    EXPECT_NE(Decide({one, speeds, REPLY_SIZE_UNKNOWN}).why.find("pushing 0.63 s"), std::string::npos)
        << "six were measured, and one works on an object";
}

TEST(DecisionTest, ReadingAnObjectTakesAThreadItsShareOfTheLink) {
    const Decision decision = Decide({Ten(16), Link(GIGABIT), REPLY_SIZE_UNKNOWN});
    EXPECT_NEAR(decision.read_object_s, 8 * 5.0 * MIB / GIGABIT, 1e-6);
}

TEST(DecisionTest, TheClientNeedsHalfOfWhatOsdsNeedMeasuredOrNot) {
    PoolRates rates;
    const double assumed = SpeedsOf(rates, 1, std::nullopt).client_cpu_s_per_byte;
    EXPECT_GT(assumed, 0);
    rates.calls.Started();
    rates.calls.Ended(8 * MIB, 80'000);
    const MeasuredSpeeds measured = SpeedsOf(rates, 1, std::nullopt);
    ASSERT_TRUE(measured.osds_known);
    EXPECT_DOUBLE_EQ(measured.osd_calls, 1);
    EXPECT_DOUBLE_EQ(measured.client_cpu_s_per_byte, 0.08 / (8 * MIB) / 2);
}

TEST(DecisionTest, SpeedsKnowTheClustersOsds) {
    PoolRates rates;
    EXPECT_EQ(SpeedsOf(rates, 1, std::nullopt).osd_processors, MeasuredSpeeds::ASSUMED_OSD_PROCESSORS);
    const MeasuredSpeeds elsewhere = SpeedsOf(rates, 1, OsdCounts{7, 6});
    EXPECT_EQ(elsewhere.osd_processors, 6);
    EXPECT_FALSE(elsewhere.shares_processors);
    const MeasuredSpeeds here = SpeedsOf(rates, 1, OsdCounts{3, 0});
    EXPECT_EQ(here.osd_processors, here.client_processors);
    EXPECT_TRUE(here.shares_processors);
}

TEST(DecisionTest, AnUnknownNumberOfGroupsIsProbed) {
    ScanEstimate estimate = Ten(MIB);
    estimate.rows_known = false;
    EXPECT_TRUE(Decide({estimate, UNKNOWN, REPLY_SIZE_UNKNOWN}).probe);
    EXPECT_FALSE(Decide({estimate, UNKNOWN, 10 * KIB}).probe);
}

TEST(DecisionTest, NoProbeWhereTheLinkIsFasterThanTheOsds) {
    ScanEstimate estimate = Ten(MIB);
    estimate.rows_known = false;
    const Decision slow = Decide({estimate, Link(GIGABIT), REPLY_SIZE_UNKNOWN});
    EXPECT_TRUE(slow.probe && slow.offload);
    const Decision fast = Decide({estimate, Link(LOOPBACK), REPLY_SIZE_UNKNOWN});
    EXPECT_FALSE(fast.probe || fast.offload);
    EXPECT_NE(fast.why.find("reading would take about 0.0262 s, pushing 0.106 s"), std::string::npos)
        << fast.why;
}

TEST(DecisionTest, SmallScansAreReadUnlessTheLinkIsSlow) {
    ScanEstimate estimate = Ten(16);
    estimate.column_bytes = 3 * MIB - 1;
    const DecisionInputs unknown{estimate, UNKNOWN, REPLY_SIZE_UNKNOWN};
    EXPECT_FALSE(Decide(unknown).offload || LinkSpeedMatters(unknown));
    estimate.column_bytes = 3 * MIB;
    const DecisionInputs larger{estimate, UNKNOWN, REPLY_SIZE_UNKNOWN};
    EXPECT_TRUE(Decide(larger).offload && LinkSpeedMatters(larger));
    estimate.column_bytes = MIB;
    EXPECT_TRUE(Decide({estimate, Link(40e6), REPLY_SIZE_UNKNOWN}).offload) << "26 ms to read";
    EXPECT_FALSE(Decide({estimate, Link(60e6), REPLY_SIZE_UNKNOWN}).offload) << "17 ms";
}

TEST(DecisionTest, LinkSpeedMattersWhereItMayChangeTheDecision) {
    EXPECT_TRUE(LinkSpeedMatters({Ten(10 * KIB), UNKNOWN, REPLY_SIZE_UNKNOWN}))
        << "pushed, unless it is fast";
    EXPECT_TRUE(LinkSpeedMatters({Ten(4 * MIB), UNKNOWN, REPLY_SIZE_UNKNOWN})) << "read, unless it is slow";
    EXPECT_FALSE(LinkSpeedMatters({Ten(10 * MIB), UNKNOWN, REPLY_SIZE_UNKNOWN})) << "read in any case";
    EXPECT_FALSE(LinkSpeedMatters({Ten(10 * KIB), Link(GIGABIT), REPLY_SIZE_UNKNOWN})) << "it is known";
}

} // namespace rawduck_ceph
