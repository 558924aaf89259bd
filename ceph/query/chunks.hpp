//! Rows as bytes: DuckDB's serialized data chunks one after another, as one LZ4 block where asked.
#pragma once

#include "ceph/protocol/messages.hpp"

#include "duckdb/common/serializer/memory_stream.hpp"
#include "duckdb/common/types/data_chunk.hpp"

#include <memory>
#include <vector>

namespace rawduck_ceph {

class ChunkWriter {
  public:
    void Add(duckdb::DataChunk &chunk);
    //! Bytes so far, before compression.
    uint64_t Bytes() const { return stream_.GetPosition(); }
    //! Fills format, rows, sizes and payload of the reply.
    //! Sends plain chunks when LZ4 would not make them smaller.
    void Finish(ReplyFormat format, Reply &reply);

  private:
    duckdb::MemoryStream stream_;
    uint64_t rows_ = 0;
};

//! Reads the chunks of a reply back. Throws duckdb::Exception when the payload does not decode, when a chunk
//! has other types than expected, or when the number of rows differs.
class ChunkReader {
  public:
    ChunkReader(Reply reply, duckdb::vector<duckdb::LogicalType> types);
    //! False at the end.
    bool Next(duckdb::DataChunk &chunk);

  private:
    Reply reply_;
    duckdb::vector<duckdb::LogicalType> types_;
    std::unique_ptr<duckdb::MemoryStream> stream_;
    uint64_t rows_ = 0;
};

} // namespace rawduck_ceph
