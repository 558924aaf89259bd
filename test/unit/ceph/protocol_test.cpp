#include "ceph/parquet/footer_checksum.hpp"
#include "ceph/parquet/object_statistics.hpp"
#include "ceph/protocol/bytes.hpp"
#include "ceph/protocol/messages.hpp"
#include "common/crc32c.hpp"

#include <cstring>
#include <gtest/gtest.h>
#include <random>

namespace rawduck_ceph {
namespace {

Request SomeRequest() {
    Request request;
    request.duckdb_version = "v2.0.0";
    request.columns = {{"a", "INTEGER"}, {"b c", "DECIMAL(15,2)"}};
    request.filter = "a > 5";
    request.outputs = {"a", "sum(\"b c\")"};
    request.aggregate = true;
    request.group_count = 1;
    request.order = {{1, true, false}, {0, false, true}};
    request.limit = 10;
    request.format = ReplyFormat::CHUNKS_LZ4;
    request.reply_bytes_max = 1234567;
    request.time_ms_max = 99;
    request.use_cache = true;
    return request;
}

Request Decoded(const std::string &bytes) {
    uint16_t version = 0;
    return DecodeRequest(bytes.data(), bytes.size(), version);
}

//! Makes the checksum of a changed message right again.
std::string Resealed(std::string bytes) {
    Frame frame;
    std::memcpy(&frame, bytes.data(), sizeof(frame));
    frame.body_bytes = static_cast<uint32_t>(bytes.size() - sizeof(frame));
    frame.crc = 0;
    frame.crc = rawduck::Crc32c(rawduck::Crc32c(0, &frame, sizeof(frame)), bytes.data() + sizeof(frame),
                                frame.body_bytes);
    std::memcpy(&bytes[0], &frame, sizeof(frame));
    return bytes;
}

} // namespace

TEST(CephProtocolTest, RequestRoundTrip) {
    const Request sent = SomeRequest();
    const Request got = Decoded(EncodeRequest(sent));
    EXPECT_EQ(got.duckdb_version, sent.duckdb_version);
    ASSERT_EQ(got.columns.size(), 2u);
    EXPECT_EQ(got.columns[1].name, "b c");
    EXPECT_EQ(got.columns[1].type, "DECIMAL(15,2)");
    EXPECT_EQ(got.filter, sent.filter);
    EXPECT_EQ(got.outputs, sent.outputs);
    EXPECT_TRUE(got.aggregate);
    EXPECT_EQ(got.group_count, 1u);
    ASSERT_EQ(got.order.size(), 2u);
    EXPECT_EQ(got.order[0].output, 1u);
    EXPECT_TRUE(got.order[0].descending);
    EXPECT_TRUE(got.order[1].nulls_first);
    EXPECT_EQ(got.limit, 10u);
    EXPECT_EQ(got.format, ReplyFormat::CHUNKS_LZ4);
    EXPECT_EQ(got.reply_bytes_max, 1234567u);
    EXPECT_EQ(got.time_ms_max, 99u);
    EXPECT_TRUE(got.use_cache);
    EXPECT_EQ(EncodeRequest(got), EncodeRequest(sent));
}

TEST(CephProtocolTest, ReplyRoundTrip) {
    Reply sent;
    sent.status = ReplyStatus::TOO_LARGE;
    sent.text = "why";
    sent.duckdb_version = "v2.0.0";
    sent.row_count = 3;
    sent.raw_bytes = 4;
    sent.read_bytes = 5;
    sent.cpu_us = 6;
    sent.cached = true;
    sent.payload = std::string("a\0b", 3);
    const std::string bytes = EncodeReply(sent);
    uint16_t version = 0;
    const Reply got = DecodeReply(bytes.data(), bytes.size(), version);
    EXPECT_EQ(got.status, ReplyStatus::TOO_LARGE);
    EXPECT_EQ(got.payload, sent.payload);
    EXPECT_EQ(got.cpu_us, 6u);
    EXPECT_TRUE(got.cached);
    EXPECT_EQ(EncodeReply(got), bytes);
    EXPECT_THROW(DecodeReply(bytes.data(), bytes.size() - 1, version), ProtocolError);
}

TEST(CephProtocolTest, EveryCorruptByteIsDetected) {
    const std::string good = EncodeRequest(SomeRequest());
    for (size_t i = 0; i < good.size(); i++) {
        std::string bad = good;
        bad[i] ^= 0x10;
        if (i == 4 || i == 5) {
            // The version: said to be another one, and nothing else is looked at.
            uint16_t version = 0;
            EXPECT_TRUE(DecodeRequest(bad.data(), bad.size(), version).outputs.empty());
            EXPECT_NE(version, PROTOCOL_VERSION);
            continue;
        }
        EXPECT_THROW(Decoded(bad), ProtocolError) << "byte " << i;
    }
}

TEST(CephProtocolTest, LengthsAreChecked) {
    const std::string good = EncodeRequest(SomeRequest());
    for (size_t length = 0; length < good.size(); length++) {
        EXPECT_THROW(Decoded(good.substr(0, length)), ProtocolError) << length << " bytes";
        if (length >= sizeof(Frame)) {
            EXPECT_THROW(Decoded(Resealed(good.substr(0, length))), ProtocolError)
                << length << " bytes, sealed";
        }
    }
    EXPECT_THROW(Decoded(Resealed(good + "x")), ProtocolError);
    EXPECT_THROW(Decoded(std::string(REQUEST_BYTES_MAX + 1, 'x')), ProtocolError);
    std::mt19937 random(3);
    for (int run = 0; run < 20000; run++) {
        std::string bad = good;
        for (int i = 0; i < 3; i++) {
            bad[sizeof(Frame) + random() % (bad.size() - sizeof(Frame))] = static_cast<char>(random());
        }
        try {
            EXPECT_EQ(EncodeRequest(Decoded(Resealed(bad))), Resealed(bad));
        } catch (const ProtocolError &) {
        }
    }
}

TEST(CephProtocolTest, InconsistentRequestsAreRejected) {
    Request request = SomeRequest();
    request.outputs.clear();
    request.order.clear();
    request.group_count = 0;
    EXPECT_THROW(Decoded(EncodeRequest(request)), ProtocolError);
    request = SomeRequest();
    request.order[0].output = 2;
    EXPECT_THROW(Decoded(EncodeRequest(request)), ProtocolError);
    request = SomeRequest();
    request.group_count = 3;
    EXPECT_THROW(Decoded(EncodeRequest(request)), ProtocolError);
    request = SomeRequest();
    request.aggregate = false;
    EXPECT_THROW(Decoded(EncodeRequest(request)), ProtocolError);
    request = SomeRequest();
    request.outputs.assign(REQUEST_ITEMS_MAX + 1, "a");
    EXPECT_THROW(Decoded(EncodeRequest(request)), ProtocolError);
}

TEST(CephProtocolTest, FooterChecksumIsBoundToTheObjectSize) {
    std::string object = "PAR1....metadata";
    object += std::string("\x08\0\0\0", 4) + "PAR1";
    const std::string value = FooterAttributeOf(object.data(), object.size());
    uint32_t crc = 0;
    ASSERT_TRUE(ReadFooterAttribute(value, object.size(), crc));
    EXPECT_EQ(crc, rawduck::Crc32c(0, object.data() + 8, object.size() - 8));
    EXPECT_FALSE(ReadFooterAttribute(value, object.size() + 1, crc));
    EXPECT_FALSE(ReadFooterAttribute(value.substr(1), object.size(), crc));
    object[object.size() - 5] = 1; // a length beyond the object
    EXPECT_EQ(FooterAttributeOf(object.data(), object.size()), "");
    EXPECT_EQ(FooterAttributeOf("a,b\n1,2\n", 8), "");
}

TEST(CephProtocolTest, StatisticsAreBoundToSizeAndTime) {
    const timespec modified = {1700000000, 123456789};
    ObjectStatistics statistics;
    statistics["a"] = {"BIGINT", -5, INT64_MAX, "", ""};
    statistics["b"] = {"VARCHAR", 0, 0, "", "zz"};
    std::string value = EncodeStatistics(statistics, 4711, modified);
    const auto decoded = DecodeStatistics(value, 4711, modified);
    ASSERT_EQ(decoded.size(), 2u);
    EXPECT_EQ(decoded.at("a").type, "BIGINT");
    EXPECT_EQ(decoded.at("a").minimum, -5);
    EXPECT_EQ(decoded.at("a").maximum, INT64_MAX);
    EXPECT_EQ(decoded.at("b").maximum_text, "zz");
    EXPECT_TRUE(DecodeStatistics(value, 4712, modified).empty());
    EXPECT_TRUE(DecodeStatistics(value, 4711, {1700000000, 123456788}).empty());
    EXPECT_TRUE(DecodeStatistics(value, 4711, {1700000001, 123456789}).empty());
    for (size_t i = 0; i < value.size(); i++) {
        EXPECT_TRUE(DecodeStatistics(value.substr(0, i), 4711, modified).empty());
        value[i] ^= 1;
        EXPECT_TRUE(DecodeStatistics(value, 4711, modified).empty());
        value[i] ^= 1;
    }
    EXPECT_EQ(EncodeStatistics({}, 4711, modified), "");
    EXPECT_TRUE(StatisticsOf("a,b\n1,2\n", 8).empty());
}

} // namespace rawduck_ceph
