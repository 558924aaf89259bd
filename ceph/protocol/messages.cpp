#include "ceph/protocol/messages.hpp"

#include "ceph/protocol/bytes.hpp"
#include "common/crc32c.hpp"

namespace rawduck_ceph {

namespace {

constexpr char REQUEST_MAGIC[4] = {'R', 'D', 'Q', 'R'};
constexpr char REPLY_MAGIC[4] = {'R', 'D', 'Q', 'A'};

uint32_t FrameCrc(Frame frame, const char *body) {
    frame.crc = 0;
    return rawduck::Crc32c(rawduck::Crc32c(0, &frame, sizeof(frame)), body, frame.body_bytes);
}

std::string Seal(const char (&magic)[4], const std::string &body) {
    Frame frame = {};
    std::memcpy(frame.magic, magic, sizeof(frame.magic));
    frame.version = PROTOCOL_VERSION;
    frame.body_bytes = static_cast<uint32_t>(body.size());
    frame.crc = FrameCrc(frame, body.data());
    return std::string(reinterpret_cast<const char *>(&frame), sizeof(frame)) + body;
}

//! Checks the frame. Returns a reader of the body; an empty one for another version.
ByteReader OpenFrame(const char (&magic)[4], const char *data, size_t length, uint16_t &version) {
    Frame frame;
    if (length < sizeof(frame)) {
        throw ProtocolError("the message is shorter than its frame");
    }
    std::memcpy(&frame, data, sizeof(frame));
    if (std::memcmp(frame.magic, magic, sizeof(frame.magic)) != 0) {
        throw ProtocolError("the message does not start with its magic");
    }
    version = frame.version;
    if (version != PROTOCOL_VERSION) {
        return ByteReader(data, 0);
    }
    const char *body = data + sizeof(frame);
    if (frame.body_bytes != length - sizeof(frame)) {
        throw ProtocolError("the message's length is not what its frame says");
    }
    if (frame.crc != FrameCrc(frame, body)) {
        throw ProtocolError("the message's checksum does not match");
    }
    return ByteReader(body, frame.body_bytes);
}

uint32_t LimitedCount(ByteReader &reader) {
    uint32_t count = reader.Count();
    if (count > REQUEST_ITEMS_MAX) {
        throw ProtocolError("a list of the request is too long");
    }
    return count;
}

bool Flag(ByteReader &reader) {
    uint8_t value = reader.Integer<uint8_t>();
    if (value > 1) {
        throw ProtocolError("a flag is neither 0 nor 1");
    }
    return value == 1;
}

ReplyFormat Format(ByteReader &reader) {
    uint8_t value = reader.Integer<uint8_t>();
    if (value > static_cast<uint8_t>(ReplyFormat::CHUNKS_LZ4)) {
        throw ProtocolError("the reply's format is unknown");
    }
    return static_cast<ReplyFormat>(value);
}

void CheckEnd(const ByteReader &reader) {
    if (reader.Left() != 0) {
        throw ProtocolError("bytes follow the message");
    }
}

} // namespace

const char *ReplyStatusName(ReplyStatus status) {
    switch (status) {
    case ReplyStatus::OK:
        return "ok";
    case ReplyStatus::VERSION:
        return "another version";
    case ReplyStatus::BAD_REQUEST:
        return "bad request";
    case ReplyStatus::TOO_LARGE:
        return "too large";
    case ReplyStatus::TOO_SLOW:
        return "too slow";
    case ReplyStatus::BUSY:
        return "busy";
    case ReplyStatus::CORRUPT:
        return "corrupt";
    case ReplyStatus::FAILED:
        return "failed";
    case ReplyStatus::CANNOT_READ:
        return "cannot read";
    case ReplyStatus::WORKING:
        return "working";
    case ReplyStatus::UNAVAILABLE:
        return "unavailable";
    case ReplyStatus::EXPRESSION_FAILED:
        return "an expression failed";
    }
    return "unknown status";
}

std::string EncodeRequest(const Request &request) {
    ByteWriter writer;
    writer.String(request.duckdb_version);
    writer.Integer(static_cast<uint32_t>(request.columns.size()));
    for (const RequestColumn &column : request.columns) {
        writer.String(column.name);
        writer.String(column.type);
    }
    writer.String(request.filter);
    writer.Integer(static_cast<uint32_t>(request.outputs.size()));
    for (const std::string &output : request.outputs) {
        writer.String(output);
    }
    writer.Integer(static_cast<uint8_t>(request.aggregate));
    writer.Integer(request.group_count);
    writer.Integer(static_cast<uint32_t>(request.order.size()));
    for (const RequestOrder &order : request.order) {
        writer.Integer(order.output);
        writer.Integer(static_cast<uint8_t>(order.descending));
        writer.Integer(static_cast<uint8_t>(order.nulls_first));
    }
    writer.Integer(request.limit);
    writer.Integer(static_cast<uint8_t>(request.format));
    writer.Integer(request.reply_bytes_max);
    writer.Integer(request.time_ms_max);
    writer.Integer(static_cast<uint8_t>(request.use_cache));
    return Seal(REQUEST_MAGIC, writer.Take());
}

Request DecodeRequest(const char *data, size_t length, uint16_t &version) {
    if (length > REQUEST_BYTES_MAX) {
        throw ProtocolError("the request is too long");
    }
    Request request;
    ByteReader reader = OpenFrame(REQUEST_MAGIC, data, length, version);
    if (version != PROTOCOL_VERSION) {
        return request;
    }
    request.duckdb_version = reader.String();
    for (uint32_t left = LimitedCount(reader); left > 0; left--) {
        std::string name = reader.String();
        request.columns.push_back({name, reader.String()});
    }
    request.filter = reader.String();
    for (uint32_t left = LimitedCount(reader); left > 0; left--) {
        request.outputs.push_back(reader.String());
    }
    request.aggregate = Flag(reader);
    request.group_count = reader.Integer<uint32_t>();
    for (uint32_t left = LimitedCount(reader); left > 0; left--) {
        RequestOrder order;
        order.output = reader.Integer<uint32_t>();
        order.descending = Flag(reader);
        order.nulls_first = Flag(reader);
        if (order.output >= request.outputs.size()) {
            throw ProtocolError("a sort key names no output");
        }
        request.order.push_back(order);
    }
    request.limit = reader.Integer<uint64_t>();
    request.format = Format(reader);
    request.reply_bytes_max = reader.Integer<uint64_t>();
    request.time_ms_max = reader.Integer<uint32_t>();
    request.use_cache = Flag(reader);
    CheckEnd(reader);
    if (request.outputs.empty()) {
        throw ProtocolError("the request asks for no output");
    }
    if (request.group_count > (request.aggregate ? request.outputs.size() : 0)) {
        throw ProtocolError("the request has more groups than outputs");
    }
    return request;
}

std::string EncodeReply(const Reply &reply) {
    ByteWriter writer;
    writer.Integer(static_cast<uint16_t>(reply.status));
    writer.String(reply.text);
    writer.String(reply.duckdb_version);
    writer.Integer(static_cast<uint8_t>(reply.format));
    writer.Integer(reply.row_count);
    writer.Integer(reply.raw_bytes);
    writer.Integer(reply.read_bytes);
    writer.Integer(reply.cpu_us);
    writer.Integer(reply.retry_ms);
    writer.Integer(static_cast<uint8_t>(reply.cached));
    writer.String(reply.payload);
    return Seal(REPLY_MAGIC, writer.Take());
}

Reply DecodeReply(const char *data, size_t length, uint16_t &version) {
    Reply reply;
    ByteReader reader = OpenFrame(REPLY_MAGIC, data, length, version);
    if (version != PROTOCOL_VERSION) {
        return reply;
    }
    uint16_t status = reader.Integer<uint16_t>();
    if (status > static_cast<uint16_t>(REPLY_STATUS_LAST)) {
        throw ProtocolError("the reply's status is unknown");
    }
    reply.status = static_cast<ReplyStatus>(status);
    reply.text = reader.String();
    reply.duckdb_version = reader.String();
    reply.format = Format(reader);
    reply.row_count = reader.Integer<uint64_t>();
    reply.raw_bytes = reader.Integer<uint64_t>();
    reply.read_bytes = reader.Integer<uint64_t>();
    reply.cpu_us = reader.Integer<uint64_t>();
    reply.retry_ms = reader.Integer<uint32_t>();
    reply.cached = Flag(reader);
    reply.payload = reader.String();
    CheckEnd(reader);
    if (reply.raw_bytes > REPLY_BYTES_MAX) {
        throw ProtocolError("the reply is longer than any reply may be");
    }
    return reply;
}

} // namespace rawduck_ceph
