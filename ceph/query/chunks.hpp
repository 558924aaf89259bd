//! Rows as bytes: a sequence of DuckDB's serialized data chunks, optionally compressed as one LZ4 block.
#pragma once

#include "ceph/protocol/messages.hpp"

#include "duckdb/common/serializer/memory_stream.hpp"
#include "duckdb/common/types/data_chunk.hpp"

#include <memory>
#include <vector>

namespace rawduck_ceph {

class ChunkWriter {
  public:
    explicit ChunkWriter(uint64_t bytes_max) : bytes_max_(bytes_max) {}
    //! False when the chunks would be longer than `bytes_max`; nothing may be added then. Not more than that
    //! is ever written: a chunk may be much longer in bytes than in memory, where columns share their values.
    bool Add(duckdb::DataChunk &chunk);
    //! Size so far, before compression.
    uint64_t Bytes() const { return stream_.GetPosition(); }
    //! Sets format, row count, sizes and payload of the reply. Chunks that LZ4 does not make
    //! smaller are sent plain.
    void Finish(ReplyFormat format, Reply &reply);

  private:
    const uint64_t bytes_max_;
    duckdb::MemoryStream stream_;
    uint64_t rows_ = 0;
};

//! Decodes the chunks of a reply. Throws duckdb::Exception when the payload is malformed, when a chunk has
//! other types than expected, or when the number of rows differs.
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
