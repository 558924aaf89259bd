#include "volume/backup/stream/stream_reader.hpp"

#include "common/crc32c.hpp"
#include "common/error.hpp"

#include <algorithm>

namespace rawduck {

namespace {
constexpr const char *NO_STREAM = "this is no stream of `rawduck send`";
} // namespace

StreamReader::StreamReader(ByteSource &source) : source_(source) {
    const StreamRecordHeader begin = ReadRecord();
    std::string problem;
    if (begin.type != static_cast<uint32_t>(StreamRecordType::BEGIN)) {
        Refuse("it does not begin as a stream does");
    }
    if (!DecodeBegin(payload_, header_, problem)) {
        throw Error(ErrorCode::UNSUPPORTED, source.Name() + ": the stream cannot be received: " + problem);
    }
    header_.stream = begin.stream;
    at_ = header_.from;
}

void StreamReader::Refuse(const std::string &why) const {
    if (why == NO_STREAM) {
        throw Error(ErrorCode::CORRUPT, source_.Name() + ": " + why);
    }
    throw Error(ErrorCode::CORRUPT, source_.Name() + ": the stream is not whole: " + why + " (record " +
                                        std::to_string(records_) + ", before byte " + std::to_string(bytes_) +
                                        ")");
}

void StreamReader::ReadWhole(char *data, uint64_t length) {
    for (uint64_t done = 0; done < length;) {
        const uint64_t bytes = source_.Read(data + done, length - done);
        if (bytes == 0) {
            const bool begins = records_ > 0 || BeginsAsRecord(header_bytes_);
            Refuse(bytes_ == 0 ? "there is nothing" : begins ? "it was cut off" : NO_STREAM);
        }
        done += bytes;
        bytes_ += bytes;
    }
}

StreamRecordHeader StreamReader::ReadRecord() {
    header_bytes_.resize(STREAM_HEADER_BYTES);
    ReadWhole(&header_bytes_[0], header_bytes_.size());
    StreamRecordHeader record;
    std::string problem;
    if (!ParseRecordHeader(header_bytes_, record, problem)) {
        Refuse(records_ == 0 && !BeginsAsRecord(header_bytes_) ? NO_STREAM : problem);
    }
    payload_.resize(record.payload_bytes);
    ReadWhole(&payload_[0], payload_.size());
    if (!CheckStreamRecord(header_bytes_, payload_)) {
        Refuse("the checksum of a record is wrong");
    }
    if (record.sequence != records_ || (records_ > 0 && record.stream != header_.stream)) {
        Refuse("a record is missing, or of another stream");
    }
    return record;
}

std::optional<StreamPiece> StreamReader::Next() {
    if (ended_) {
        return std::nullopt;
    }
    crc_ = Crc32c(Crc32c(crc_, header_bytes_.data(), header_bytes_.size()), payload_.data(), payload_.size());
    records_++;
    const StreamRecordHeader record = ReadRecord();
    StreamPiece piece;
    std::string problem;
    switch (static_cast<StreamRecordType>(record.type)) {
    case StreamRecordType::DATA: {
        std::string_view data;
        if (!DecodeData(payload_, piece.range, data, problem)) {
            Refuse(problem);
        }
        piece.data = data.data();
        data_bytes_ += data.size();
        break;
    }
    case StreamRecordType::ZEROS:
        if (!DecodeZeros(payload_, piece.range, problem)) {
            Refuse(problem);
        }
        break;
    case StreamRecordType::END:
        TakeEnd(crc_, records_);
        return std::nullopt;
    case StreamRecordType::BEGIN:
    default:
        Refuse("a record of type " + std::to_string(record.type) + " has no place there");
    }
    RequireInOrder(piece.range);
    return piece;
}

void StreamReader::RequireInOrder(const StreamRange &range) {
    const bool within = range.file < header_.files.size() && range.offset <= header_.files[range.file].size &&
                        range.length <= header_.files[range.file].size - range.offset;
    if (!within || StreamPosition{range.file, range.offset} < at_) {
        Refuse(within ? "a record is out of order" : "a record lies outside of the files");
    }
    at_ = {range.file, range.offset + range.length};
}

void StreamReader::TakeEnd(uint32_t crc_before, uint64_t records_before) {
    StreamEnd end;
    std::string problem;
    if (!DecodeEnd(payload_, end, problem)) {
        Refuse(problem);
    }
    if (end.records != records_before || end.crc != crc_before || end.data_bytes != data_bytes_ ||
        end.data_bytes != header_.data_bytes) {
        Refuse("its checksum is wrong");
    }
    char more = 0;
    if (source_.Read(&more, 1) != 0) {
        Refuse("something follows on its end");
    }
    records_++;
    ended_ = true;
}

} // namespace rawduck
