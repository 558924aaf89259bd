#include "ceph/helper/supervisor/reply_cache.hpp"

#include "ceph/channel/memory_file.hpp"
#include "ceph/protocol/messages.hpp"

#include <gtest/gtest.h>

namespace rawduck_ceph {
namespace {

CallKey Key(uint64_t number) {
    CallKey key;
    key.words[0] = number;
    return key;
}

Reply Answer(size_t payload_bytes) {
    Reply reply;
    reply.row_count = 7;
    reply.raw_bytes = payload_bytes;
    reply.read_bytes = 1000;
    reply.cpu_us = 50;
    reply.payload = std::string(payload_bytes, 'x');
    return reply;
}

//! Keeps these bytes as what a worker has sent. Whether they are kept.
bool KeepBytes(ReplyCache &cache, const CallKey &key, const std::string &encoded) {
    const OwnedFd file = MakeMemoryFile("test", encoded);
    cache.Keep(key, file.Get(), encoded.size());
    return cache.Find(key) != nullptr;
}

bool Keep(ReplyCache &cache, const CallKey &key, const Reply &reply) {
    return KeepBytes(cache, key, EncodeReply(reply));
}

//! What an entry with a payload of this size takes.
uint64_t EntryBytes(size_t payload_bytes) {
    return EncodeReply(Answer(payload_bytes)).size() + ReplyCache::ENTRY_BYTES;
}

} // namespace

TEST(ReplyCacheTest, KeepsTheAnswerWithoutItsCost) {
    ReplyCache cache(1 << 20);
    EXPECT_FALSE(cache.Find(Key(1)));
    ASSERT_TRUE(Keep(cache, Key(1), Answer(100)));
    const std::string &encoded = *cache.Find(Key(1));
    uint16_t version = 0;
    const Reply kept = DecodeReply(encoded.data(), encoded.size(), version);
    EXPECT_EQ(version, PROTOCOL_VERSION);
    EXPECT_TRUE(kept.cached);
    EXPECT_EQ(kept.read_bytes, 0u);
    EXPECT_EQ(kept.cpu_us, 0u);
    EXPECT_EQ(kept.row_count, 7u);
    EXPECT_EQ(kept.payload, Answer(100).payload);
}

TEST(ReplyCacheTest, EveryWordOfTheKeyCounts) {
    ReplyCache cache(1 << 20);
    CallKey key;
    key.words[0] = 1, key.words[1] = 2, key.words[2] = 3;
    ASSERT_TRUE(Keep(cache, key, Answer(10)));
    for (uint64_t &word : key.words) {
        word ^= 1ull << 63;
        EXPECT_FALSE(cache.Find(key));
        word ^= 1ull << 63;
    }
    EXPECT_TRUE(cache.Find(key));
}

//! Pool, name and version are in what Ceph records about the object, and settings in the request.
TEST(ReplyCacheTest, AnotherObjectVersionRequestOrProcessHasAnotherKey) {
    const CallKeys keys, other_process;
    const auto key = [](const CallKeys &of, const std::string &info, const std::string &request) {
        return of.KeyOf(info, request.data(), request.size());
    };
    ReplyCache cache(1 << 20);
    ASSERT_TRUE(Keep(cache, key(keys, "pool 1, object a, version 5", "count"), Answer(10)));
    EXPECT_TRUE(cache.Find(key(keys, "pool 1, object a, version 5", "count")));
    EXPECT_FALSE(cache.Find(key(keys, "pool 1, object a, version 6", "count")));
    EXPECT_FALSE(cache.Find(key(keys, "pool 1, object b, version 5", "count")));
    EXPECT_FALSE(cache.Find(key(keys, "pool 2, object a, version 5", "count")));
    EXPECT_FALSE(cache.Find(key(keys, "pool 1, object a, version 5", "count, limit 3")));
    EXPECT_FALSE(cache.Find(key(other_process, "pool 1, object a, version 5", "count")));
}

TEST(ReplyCacheTest, ErrorsAndNonsenseAreNotKept) {
    ReplyCache cache(1 << 20);
    for (uint16_t status = 1; status <= static_cast<uint16_t>(REPLY_STATUS_LAST); status++) {
        Reply reply = Answer(10);
        reply.status = static_cast<ReplyStatus>(status);
        EXPECT_FALSE(Keep(cache, Key(status), reply)) << ReplyStatusName(reply.status);
    }
    std::string encoded = EncodeReply(Answer(10));
    encoded.back() ^= 1;
    EXPECT_FALSE(KeepBytes(cache, Key(100), encoded)) << "its checksum is wrong";
    EXPECT_FALSE(KeepBytes(cache, Key(101), "x"));
    const OwnedFd file = MakeMemoryFile("test", EncodeReply(Answer(10)));
    cache.Keep(Key(102), file.Get(), 1000);
    EXPECT_FALSE(cache.Find(Key(102))) << "the file is shorter";
    EXPECT_EQ(cache.Bytes(), 0u);
}

TEST(ReplyCacheTest, LongAnswersAreNotKept) {
    ReplyCache cache(10 << 20);
    const size_t frame_bytes = EncodeReply(Answer(0)).size();
    EXPECT_TRUE(Keep(cache, Key(1), Answer(KEPT_REPLY_BYTES_MAX - frame_bytes)));
    EXPECT_FALSE(Keep(cache, Key(2), Answer(KEPT_REPLY_BYTES_MAX - frame_bytes + 1)));
}

TEST(ReplyCacheTest, WhatWasNotAskedForTheLongestMakesRoom) {
    ReplyCache cache(3 * EntryBytes(1000));
    for (uint64_t number = 1; number <= 3; number++) {
        ASSERT_TRUE(Keep(cache, Key(number), Answer(1000)));
    }
    EXPECT_EQ(cache.Bytes(), 3 * EntryBytes(1000));
    EXPECT_TRUE(cache.Find(Key(1)));
    ASSERT_TRUE(Keep(cache, Key(4), Answer(1000)));
    EXPECT_FALSE(cache.Find(Key(2)));
    EXPECT_TRUE(cache.Find(Key(1)));
    EXPECT_TRUE(cache.Find(Key(3)));
    EXPECT_EQ(cache.Bytes(), 3 * EntryBytes(1000));
    // One that is larger takes the room of several.
    ASSERT_TRUE(Keep(cache, Key(5), Answer(1500)));
    EXPECT_EQ(cache.Count(), 2u);
    EXPECT_EQ(cache.Bytes(), EntryBytes(1000) + EntryBytes(1500));
    EXPECT_TRUE(cache.Find(Key(3)));
}

TEST(ReplyCacheTest, MemoryStaysBounded) {
    constexpr uint64_t BYTES_MAX = 100000;
    ReplyCache cache(BYTES_MAX);
    for (uint64_t number = 0; number < 5000; number++) {
        EXPECT_TRUE(Keep(cache, Key(number % 700), Answer(number % 3000)));
        EXPECT_LE(cache.Bytes(), BYTES_MAX);
    }
    EXPECT_GT(cache.Bytes(), BYTES_MAX / 2);
}

TEST(ReplyCacheTest, TheSameCallAgainReplacesItsAnswer) {
    ReplyCache cache(1 << 20);
    ASSERT_TRUE(Keep(cache, Key(1), Answer(1000)));
    ASSERT_TRUE(Keep(cache, Key(1), Answer(10)));
    EXPECT_EQ(cache.Count(), 1u);
    EXPECT_EQ(cache.Bytes(), EntryBytes(10));
}

TEST(ReplyCacheTest, ItCanBeOff) {
    ReplyCache cache(0);
    EXPECT_FALSE(Keep(cache, Key(1), Answer(0)));
    EXPECT_EQ(cache.Bytes(), 0u);
}

} // namespace rawduck_ceph
