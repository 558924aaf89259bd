//! Results of a query in pieces whose columns a device takes as they are: a result format of DuckDB's.
//!
//! DuckDB's own sink calls it, in each thread that computes the query: a thread writes its vectors into a piece of its
//! own, and hands it over when it is full, or when its batch of rows ends. Order, back-pressure (threads whose piece
//! does not fit into max_streaming_buffer_size are parked by SinkResultType::BLOCKED), interrupts and ends are DuckDB's.
#pragma once

#include "gpu/scan/host_column.hpp"
#include "gpu/scan/output_column.hpp"

#include "duckdb/main/result_format.hpp"
#include "duckdb/main/result_unit.hpp"
#include "duckdb/main/retained_result_collection.hpp"

#include <memory>
#include <vector>

namespace rawduck::gpu {

//! Some rows of the result.
struct Piece {
    std::vector<HostColumn> columns;
    uint64_t rows = 0;

    uint64_t Bytes() const;
    //! Of memory, with what is not used of it.
    uint64_t HeldBytes() const;
};

//! Columns of the result, known before anything runs.
struct PieceLayout final : duckdb::ResultFormatGlobalState {
    std::vector<TableColumn> columns;
    std::shared_ptr<const std::vector<OutputColumn>> output;
    std::shared_ptr<HostMemory> memory;
};

class PieceFormat final : public duckdb::ResultFormatBase<PieceFormat> {
  public:
    using T = Piece;
    using GlobalState = PieceLayout;
    static constexpr const char *NAME = "rawduck_gpu";

    //! Pieces lie in memory from which `device` copies by itself, as long as there is some.
    PieceFormat(OutputOptions options, std::shared_ptr<Device> device)
        : options_(options), device_(std::move(device)) {}

    const char *Name() const override { return NAME; }
    //! Throws InvalidInputException for a type that has no place in a batch.
    duckdb::unique_ptr<duckdb::ResultFormatGlobalState>
    InitGlobal(const duckdb::ResultFormatContext &context) override;
    duckdb::unique_ptr<duckdb::ResultFormatLocalState>
    InitLocal(duckdb::ResultFormatGlobalState &global) override;
    void AppendToUnit(duckdb::ResultFormatGlobalState &global, duckdb::ResultFormatLocalState &local,
                      duckdb::DataChunk &chunk) override;
    bool IsUnitFinished(duckdb::ResultFormatLocalState &local) override;
    duckdb::unique_ptr<duckdb::ResultUnit> FinishUnit(duckdb::ResultFormatGlobalState &global,
                                                      duckdb::ResultFormatLocalState &local) override;

    static duckdb::unique_ptr<Piece> UnpackUnit(duckdb::unique_ptr<duckdb::ResultUnit> unit);

  private:
    OutputOptions options_;
    std::shared_ptr<Device> device_;
};

} // namespace rawduck::gpu
