#include "ceph/query/chunks.hpp"

#include <lz4.hpp>

#include "duckdb/common/exception.hpp"
#include "duckdb/common/serializer/binary_deserializer.hpp"
#include "duckdb/common/serializer/binary_serializer.hpp"

namespace rawduck_ceph {

namespace {

struct TooLong {};

//! Throws TooLong instead of writing more than it may.
class BoundedStream final : public duckdb::WriteStream {
  public:
    BoundedStream(duckdb::MemoryStream &stream, uint64_t bytes_max)
        : stream_(stream), bytes_max_(bytes_max) {}
    void WriteData(duckdb::const_data_ptr_t data, duckdb::idx_t bytes) override {
        if (bytes > bytes_max_ || stream_.GetPosition() > bytes_max_ - bytes) {
            throw TooLong();
        }
        stream_.WriteData(data, bytes);
    }

  private:
    duckdb::MemoryStream &stream_;
    const uint64_t bytes_max_;
};

} // namespace

bool ChunkWriter::Add(duckdb::DataChunk &chunk) {
    try {
        BoundedStream stream(stream_, bytes_max_);
        duckdb::BinarySerializer::Serialize(chunk, stream);
    } catch (const TooLong &) {
        return false;
    }
    rows_ += chunk.size();
    return true;
}

void ChunkWriter::Finish(ReplyFormat format, Reply &reply) {
    const char *data = duckdb::const_char_ptr_cast(stream_.GetData());
    reply.row_count = rows_;
    reply.raw_bytes = Bytes();
    if (format == ReplyFormat::CHUNKS_LZ4) {
        reply.payload.resize(Bytes());
        int length = duckdb_lz4::LZ4_compress_default(data, &reply.payload[0], static_cast<int>(Bytes()),
                                                      static_cast<int>(Bytes()));
        if (length > 0) {
            reply.format = ReplyFormat::CHUNKS_LZ4;
            reply.payload.resize(static_cast<size_t>(length));
            return;
        }
    }
    reply.format = ReplyFormat::CHUNKS;
    reply.payload.assign(data, Bytes());
}

ChunkReader::ChunkReader(Reply reply, duckdb::vector<duckdb::LogicalType> types)
    : reply_(std::move(reply)), types_(std::move(types)) {
    if (reply_.format == ReplyFormat::CHUNKS_LZ4) {
        std::string raw(reply_.raw_bytes, '\0');
        int length = duckdb_lz4::LZ4_decompress_safe(reply_.payload.data(), &raw[0],
                                                     static_cast<int>(reply_.payload.size()),
                                                     static_cast<int>(raw.size()));
        if (length < 0) {
            throw duckdb::IOException("the reply does not decompress");
        }
        raw.resize(static_cast<size_t>(length));
        reply_.payload = std::move(raw);
    }
    if (reply_.payload.size() != reply_.raw_bytes) {
        throw duckdb::IOException("the reply is not as long as it says");
    }
    stream_ = std::make_unique<duckdb::MemoryStream>(duckdb::data_ptr_cast(&reply_.payload[0]),
                                                     reply_.payload.size());
}

bool ChunkReader::Next(duckdb::DataChunk &chunk) {
    if (stream_->GetPosition() == reply_.payload.size()) {
        if (rows_ != reply_.row_count) {
            throw duckdb::IOException("the reply has %llu rows and says %llu", rows_, reply_.row_count);
        }
        return false;
    }
    chunk.Destroy();
    duckdb::BinaryDeserializer deserializer(*stream_);
    deserializer.Begin();
    chunk.Deserialize(deserializer);
    deserializer.End();
    if (chunk.GetTypes() != types_) {
        throw duckdb::IOException("the reply's columns have other types than expected");
    }
    rows_ += chunk.size();
    return true;
}

} // namespace rawduck_ceph
