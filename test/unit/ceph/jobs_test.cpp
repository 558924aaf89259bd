#include "ceph/helper/supervisor/jobs.hpp"

#include <algorithm>
#include <gtest/gtest.h>

namespace rawduck_ceph {
namespace {

using std::chrono::milliseconds;

class JobTableTest : public testing::Test {
  protected:
    static constexpr uint32_t REQUEST_BYTES = 10;

    static CallPacket Piece(uint64_t number, uint64_t first_byte = 0, uint64_t data_bytes = 100,
                            bool is_last = true) {
        CallPacket call;
        call.kind = CallKind::HAND_OVER;
        call.key.words[0] = number;
        call.request_hash = 1;
        call.request_bytes = REQUEST_BYTES;
        call.first_byte = first_byte;
        call.data_bytes = data_bytes;
        call.is_last = is_last ? 1 : 0;
        call.time_ms_max = 500;
        return call;
    }
    static OwnedFd File(uint64_t bytes) { return MakeMemoryFile("test", std::string(bytes, 'x')); }
    Job *Add(const CallPacket &call) { return table.AddPiece(call, File(call.FileBytes()), now); }
    static AnswerPacket ReplyOf(uint64_t bytes) {
        AnswerPacket answer;
        answer.kind = AnswerKind::REPLY;
        answer.reply_bytes = bytes;
        return answer;
    }
    static JobLimits Limits() {
        JobLimits limits;
        limits.workers = 1;
        limits.waiting_max_per_worker = 3;
        limits.reply_bytes_max = 1000;
        limits.replies_max = 5;
        return limits;
    }

    HelperClock::time_point now = HelperClock::now();
    JobTable table{Limits()};
};

} // namespace

TEST_F(JobTableTest, AJobFromItsFirstPieceToItsReply) {
    Job *job = Add(Piece(1, 0, 100, false));
    ASSERT_TRUE(job);
    EXPECT_EQ(job->state, JobState::UPLOADING);
    EXPECT_FALSE(table.NextQueued(now));
    EXPECT_FALSE(Add(Piece(1, 50))) << "not what follows";
    ASSERT_EQ(Add(Piece(1, 100)), job);
    EXPECT_EQ(job->state, JobState::QUEUED);
    EXPECT_EQ(table.DataBytes(), 2 * (100 + REQUEST_BYTES));
    ASSERT_EQ(table.NextQueued(now), job);
    EXPECT_EQ(table.DeadlineOf(*job), now + milliseconds(550));
    table.Finish(*job, ReplyOf(400), File(400), now);
    EXPECT_EQ(table.DataBytes(), 0u);
    EXPECT_EQ(table.ReplyBytes(), 400u);
    EXPECT_EQ(table.Find(job->call.key), job);
    job->is_sent = true;
    table.Expire(now + milliseconds(99));
    EXPECT_EQ(table.Count(), 1u) << "its client may come again";
    table.Expire(now + milliseconds(101));
    EXPECT_EQ(table.Count(), 0u);
    EXPECT_EQ(table.ReplyBytes(), 0u);
}

TEST_F(JobTableTest, FilesAreWhatThePacketsSay) {
    const CallPacket call = Piece(1);
    EXPECT_FALSE(table.AddPiece(call, File(call.FileBytes() - 1), now));
    EXPECT_FALSE(table.AddPiece(call, OwnedFd(), now));
    EXPECT_FALSE(table.AddPiece(Piece(1, 5), File(call.FileBytes()), now)) << "not the first one";
    CallPacket large = Piece(1);
    large.data_bytes = PIECE_BYTES_MAX + 1;
    EXPECT_FALSE(table.AddPiece(large, File(10), now));
    EXPECT_EQ(table.Count(), 0u);
    EXPECT_EQ(table.DataBytes(), 0u);
}

TEST_F(JobTableTest, WaitingJobsAndRepliesAreBounded) {
    for (uint64_t i = 0; i < 3; i++) {
        EXPECT_TRUE(table.HasRoom(0));
        ASSERT_TRUE(Add(Piece(i)));
    }
    EXPECT_FALSE(table.HasRoom(0));
    for (uint64_t i = 0; i < 3; i++) {
        now += milliseconds(1);
        Job *job = table.NextQueued(now);
        ASSERT_TRUE(job);
        EXPECT_EQ(job->call.key.words[0], i) << "the oldest first";
        table.Finish(*job, ReplyOf(400), File(400), now);
    }
    EXPECT_TRUE(table.HasRoom(0));
    EXPECT_FALSE(table.HasRoom(Limits().data_bytes_max));
    EXPECT_EQ(table.ReplyBytes(), 800u);
    CallKey first;
    EXPECT_EQ(table.Find(first)->answer.status, ReplyStatus::BUSY) << "its reply made room";
}

TEST_F(JobTableTest, RepliesThatNobodyFetchesAreFewOpenFiles) {
    for (uint64_t number = 1; number <= 8; number++) {
        Job *job = Add(Piece(number));
        ASSERT_EQ(table.NextQueued(now), job);
        table.Finish(*job, ReplyOf(1), File(1), now + milliseconds(static_cast<int>(number)));
        EXPECT_EQ(table.Replies(), std::min<uint64_t>(number, 5));
    }
    EXPECT_FALSE(table.Find(Piece(3).key)->reply) << "the oldest ones are gone";
    EXPECT_EQ(table.Find(Piece(3).key)->answer.status, ReplyStatus::BUSY);
    EXPECT_TRUE(table.Find(Piece(4).key)->reply);
    table.Expire(now + milliseconds(60000));
    EXPECT_EQ(table.Replies(), 0u);
}

TEST_F(JobTableTest, WhatNobodyAsksForIsForgotten) {
    Add(Piece(1));
    Add(Piece(2, 0, 100, false));
    Job *running = table.NextQueued(now);
    Add(Piece(3));
    table.Expire(now + milliseconds(2999));
    EXPECT_EQ(table.Count(), 3u);
    table.Expire(now + milliseconds(3001));
    EXPECT_EQ(table.Count(), 1u) << "the running one has a deadline instead";
    EXPECT_EQ(table.Find(running->call.key), running);
    EXPECT_EQ(table.DataBytes(), 100u + REQUEST_BYTES);
    EXPECT_FALSE(table.NextQueued(now));
}

TEST_F(JobTableTest, SlowRequestsAreRememberedForAWhile) {
    EXPECT_FALSE(table.IsKnownSlow(7, now));
    table.SetSlow(7, now);
    EXPECT_TRUE(table.IsKnownSlow(7, now + milliseconds(29000)));
    EXPECT_FALSE(table.IsKnownSlow(8, now));
    EXPECT_FALSE(table.IsKnownSlow(7, now + milliseconds(31000)));
    for (uint64_t request = 0; request < 100000; request++) {
        table.SetSlow(request, now);
    }
    EXPECT_TRUE(table.IsKnownSlow(99999, now));
}

TEST_F(JobTableTest, ExpectationsFollowTheRequest) {
    Job *job = Add(Piece(1));
    EXPECT_EQ(table.ExpectedMs(*job, now), 10u) << "a guess";
    table.NextQueued(now);
    table.Finish(*job, ReplyOf(1), File(1), now + milliseconds(40));
    Job *next = Add(Piece(2));
    Job *last = Add(Piece(3));
    EXPECT_EQ(table.ExpectedMs(*next, now), 40u);
    EXPECT_EQ(table.ExpectedMs(*last, now), 80u) << "one is before it";
    table.NextQueued(now);
    EXPECT_EQ(table.ExpectedMs(*next, now + milliseconds(30)), 10u);
    EXPECT_EQ(table.ExpectedMs(*next, now + milliseconds(60)), 30u) << "late already";
    table.Finish(*next, ReplyOf(1), File(1), now + milliseconds(10));
    EXPECT_EQ(table.ExpectedMs(*last, now), 19u) << "the faster runs count";
}

} // namespace rawduck_ceph
