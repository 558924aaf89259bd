#include "ceph/osd/object_call.hpp"

#include "ceph/parquet/column_ranges.hpp"
#include "ceph/protocol/bytes.hpp"

#include <algorithm>
#include <chrono>
#include <memory>

namespace rawduck_ceph {

namespace {

using Clock = std::chrono::steady_clock;

//! One read of the object: small enough that the time is checked often.
constexpr uint64_t READ_BYTES = 512 << 10;

//! Ends a call with this status; caught by AnswerCall.
struct Refusal {
    ReplyStatus status;
    std::string text;
};

//! An object whose last bytes are read once: the footer's check reads them in parts.
class CachedTail final : public ObjectSource {
  public:
    CachedTail(ObjectSource &object, uint32_t footer_bytes_max)
        : object_(object), footer_bytes_max_(footer_bytes_max) {}

    uint64_t Size() const override { return object_.Size(); }
    void Read(uint64_t offset, size_t length, char *buffer) override {
        if (length > footer_bytes_max_ + size_t{8}) {
            throw Refusal{ReplyStatus::TOO_LARGE, "the object's footer is longer than " +
                                                      std::to_string(footer_bytes_max_) + " bytes"};
        }
        const uint64_t start = Size() - std::min<uint64_t>(Size(), TAIL_BYTES);
        if (offset < start) {
            object_.Read(offset, length, buffer);
            return;
        }
        if (tail_.empty()) {
            tail_.resize(Size() - start);
            object_.Read(start, tail_.size(), &tail_[0]);
        }
        tail_.copy(buffer, length, offset - start);
    }
    bool RecordedFooterCrc(uint32_t &crc) override {
        has_crc = object_.RecordedFooterCrc(crc);
        footer_crc = has_crc ? crc : 0;
        return has_crc;
    }

    bool has_crc = false;
    uint32_t footer_crc = 0;

  private:
    static constexpr uint64_t TAIL_BYTES = 32 * 1024;
    ObjectSource &object_;
    const uint32_t footer_bytes_max_;
    std::string tail_;
};

//! Bytes of the object that one call hands over, in a file after the request.
struct Piece {
    std::vector<ByteRange> ranges;
    uint64_t bytes = 0;
    bool is_last = false;
};

//! Reads what follows the first `skip` bytes of the ranges, until enough is read or the time is over.
Piece ReadPiece(ObjectSource &object, const std::vector<ObjectRange> &ranges, uint64_t skip,
                uint32_t read_ms_max, MemoryFileWriter &file) {
    // One buffer, which stays in the processor's cache and needs no new pages.
    static thread_local std::unique_ptr<char[]> buffer(new char[READ_BYTES]);
    const auto deadline = Clock::now() + std::chrono::milliseconds(read_ms_max);
    Piece piece;
    for (const ObjectRange &range : ranges) {
        const uint64_t skipped = std::min(skip, range.end - range.start);
        skip -= skipped;
        for (uint64_t start = range.start + skipped; start < range.end;) {
            const uint64_t bytes = std::min(READ_BYTES, range.end - start);
            const bool is_over = piece.bytes > 0 && Clock::now() >= deadline;
            if (is_over || piece.bytes + bytes > PIECE_BYTES_MAX || piece.ranges.size() == RANGES_MAX) {
                return piece;
            }
            object.Read(start, bytes, buffer.get());
            file.Write(buffer.get(), bytes);
            piece.ranges.push_back({start, bytes});
            piece.bytes += bytes;
            start += bytes;
        }
    }
    piece.is_last = true;
    return piece;
}

//! Hands over the part of the object that follows the first `received` bytes.
HelperClient::Answer HandOver(const char *request, size_t length, const Request &decoded, uint64_t received,
                              CallPacket packet, CalledObject &object, HelperClient &helper,
                              const HandOverLimits &limits) {
    CachedTail tail(object, limits.footer_bytes_max);
    ParquetLayout layout;
    const std::string problem = CheckFooter(tail, &layout);
    if (!problem.empty()) {
        throw Refusal{ReplyStatus::CORRUPT, problem};
    }
    std::vector<std::string> columns;
    for (const RequestColumn &column : decoded.columns) {
        columns.push_back(column.name);
    }
    const auto ranges = NeededRanges(layout, object.Size(), columns);
    MemoryFileWriter file("rawduck-object");
    file.Write(request, length);
    const Piece piece = ReadPiece(object, ranges, received, limits.read_ms_max, file);
    file.Write(piece.ranges.data(), piece.ranges.size() * sizeof(ByteRange));
    packet.kind = CallKind::HAND_OVER;
    packet.first_byte = received;
    packet.data_bytes = piece.bytes;
    packet.request_bytes = static_cast<uint32_t>(length);
    packet.range_count = static_cast<uint32_t>(piece.ranges.size());
    packet.is_last = piece.is_last ? 1 : 0;
    packet.wait_ms = piece.is_last ? HelperClient::WAIT_MS : 0;
    packet.has_footer_crc = tail.has_crc ? 1 : 0;
    packet.footer_crc = tail.footer_crc;
    const OwnedFd sealed = file.Seal();
    return helper.Call(packet, sealed.Get());
}

HelperClient::Answer AskAndHandOver(const char *request, size_t length, CalledObject &object,
                                    HelperClient &helper, const CallKeys &keys, const HandOverLimits &limits,
                                    Allowance allowance) {
    uint16_t version = 0;
    const Request decoded = DecodeRequest(request, length, version);
    if (version != PROTOCOL_VERSION || decoded.duckdb_version != RAWDUCK_DUCKDB_VERSION) {
        throw Refusal{ReplyStatus::VERSION, "the class is: " + ClassVersion()};
    }
    if (object.Size() > limits.object_bytes_max) {
        throw Refusal{ReplyStatus::TOO_LARGE,
                      "the object is larger than " + std::to_string(limits.object_bytes_max) + " bytes"};
    }
    CallPacket packet;
    packet.key = keys.KeyOf(object.Info(), request, length);
    packet.request_hash = keys.RequestHash(request, length);
    packet.object_bytes = object.Size();
    packet.time_ms_max = decoded.time_ms_max;
    packet.keeps_reply = decoded.use_cache ? 1 : 0;
    if (allowance == Allowance::ALL) {
        packet.wait_ms = HelperClient::WAIT_MS;
    }
    auto answer = helper.Call(packet);
    if (answer.packet.kind != AnswerKind::SEND_DATA) {
        return answer;
    }
    if (allowance == Allowance::FETCH) {
        throw Refusal{ReplyStatus::BUSY, BusyThread().text};
    }
    return HandOver(request, length, decoded, answer.packet.received_bytes, packet, object, helper, limits);
}

CallResult ResultOf(HelperClient::Answer answer) {
    CallResult result;
    const AnswerPacket &packet = answer.packet;
    if (packet.kind == AnswerKind::REPLY) {
        result.encoded = std::move(answer.file);
        result.encoded_bytes = packet.reply_bytes;
        return result;
    }
    // SEND_DATA: a piece was taken, and the next call brings the next one.
    const bool is_status = packet.kind == AnswerKind::STATUS && packet.status != ReplyStatus::OK &&
                           packet.status <= REPLY_STATUS_LAST;
    result.reply.status = is_status ? packet.status : ReplyStatus::WORKING;
    result.reply.text = packet.text;
    result.reply.retry_ms = packet.kind == AnswerKind::SEND_DATA ? 1 : packet.retry_ms;
    return result;
}

CallResult Refused(ReplyStatus status, const std::string &text) {
    CallResult result;
    result.reply.status = status;
    result.reply.text = text;
    return result;
}

} // namespace

Reply BusyThread() {
    Reply reply;
    reply.status = ReplyStatus::BUSY;
    reply.text = "the op thread has no time for more calls";
    reply.duckdb_version = RAWDUCK_DUCKDB_VERSION;
    return reply;
}

std::string ClassVersion() {
    return "rawduck object class, protocol " + std::to_string(PROTOCOL_VERSION) + ", DuckDB " +
           RAWDUCK_DUCKDB_VERSION;
}

CallResult AnswerCall(const char *request, size_t length, CalledObject &object, HelperClient &helper,
                      const CallKeys &keys, const HandOverLimits &limits, Allowance allowance) {
    CallResult result;
    try {
        result = ResultOf(AskAndHandOver(request, length, object, helper, keys, limits, allowance));
    } catch (const Refusal &refusal) {
        result = Refused(refusal.status, refusal.text);
    } catch (const ProtocolError &error) {
        result = Refused(ReplyStatus::BAD_REQUEST, error.what());
    } catch (const CannotReadHere &error) {
        result = Refused(ReplyStatus::CANNOT_READ, error.what());
    } catch (const std::runtime_error &error) {
        result = Refused(ReplyStatus::FAILED, error.what());
    }
    result.reply.duckdb_version = RAWDUCK_DUCKDB_VERSION;
    return result;
}

} // namespace rawduck_ceph
