//! The result of a query onto a device: DuckDB computes it, in its threads, and each writes columns as batches have them.
//!
//! It runs on the connection that asked, in its transaction where it has one. Until it ends, DuckDB refuses other
//! statements there. What DuckDB has computed and nobody has taken is bounded by max_streaming_buffer_size, and by a
//! piece in each thread.
#pragma once

#include "gpu/query/copied_pieces.hpp"
#include "gpu/scan/batch_source.hpp"

#include "duckdb/main/query_result_stream.hpp"
#include "duckdb/planner/expression/bound_parameter_data.hpp"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace rawduck::gpu {

//! By name; those without one are called 1, 2, ...
using QueryParameterValues = duckdb::identifier_map_t<duckdb::BoundParameterData>;

class Query final : public BatchSource {
  public:
    Query(duckdb::ClientContext &context, std::string sql, QueryParameterValues parameters,
          const ScanOptions &options);
    //! Ends the query where it is.
    ~Query() override;

    //! Submits the query. Throws DuckDB's exceptions: not one SELECT, parameters that do not fit, columns that have no
    //! place in a batch, another result that is open on the connection.
    void Begin() override;
    Step Next(std::shared_ptr<Batch> &batch) override;

  private:
    //! Takes a piece, or part in the computation, or waits for those who compute, for some 20 ms at most.
    void Proceed();
    void Add(duckdb::unique_ptr<Piece> piece);
    bool HasEnough() const;
    std::shared_ptr<Batch> BuildBatch();

    std::mutex mutex_;
    std::shared_ptr<Device> device_;
    const std::shared_ptr<void> freed_memory_ = device_->KeepFreedMemory();
    duckdb::shared_ptr<duckdb::ClientContext> context_;
    std::string sql_;
    QueryParameterValues parameters_;
    ScanOptions options_;
    std::unique_ptr<BatchBuilder> builder_;
    CopiedPieces copied_pieces_;
    std::unique_ptr<duckdb::QueryResultStream<PieceFormat>> stream_; //!< null at the end
    std::shared_ptr<const std::vector<OutputColumn>> layout_;
    std::shared_ptr<const HostMemory> memory_;
    std::vector<uint64_t> queued_characters_; //!< of each column, in the builder
    uint64_t bytes_copied_ = 0;               //!< since the last batch
    double milliseconds_ = 0;                 //!< likewise
};

} // namespace rawduck::gpu
