#include "gpu/query/piece_format.hpp"

#include "gpu/plan/segments.hpp"

#include "duckdb/common/types/data_chunk.hpp"
#include "duckdb/main/query_result.hpp"

namespace rawduck::gpu {
namespace {

//! Small enough for several threads to have room in DuckDB's default of 10 MiB, and large enough to be worth a copy.
constexpr uint64_t FULL_PIECE_BYTES = 1 << 20, MOST_PIECE_BYTES = 8 << 20;

//! What one thread is writing.
struct GrowingPiece final : duckdb::ResultFormatLocalState {
    Piece piece;
};

class PieceUnit final : public duckdb::ResultUnit {
  public:
    explicit PieceUnit(duckdb::unique_ptr<Piece> made)
        : ResultUnit(made->rows, made->HeldBytes()), piece(std::move(made)) {}

    duckdb::unique_ptr<Piece> piece;
};

} // namespace

uint64_t Piece::Bytes() const {
    uint64_t bytes = 0;
    for (const HostColumn &column : columns) {
        bytes += column.Bytes();
    }
    return bytes;
}

uint64_t Piece::HeldBytes() const {
    uint64_t bytes = 0;
    for (const HostColumn &column : columns) {
        bytes += column.HeldBytes();
    }
    return bytes;
}

duckdb::unique_ptr<duckdb::ResultFormatGlobalState>
PieceFormat::InitGlobal(const duckdb::ResultFormatContext &context) {
    auto layout = duckdb::make_uniq<PieceLayout>();
    auto names = context.names;
    duckdb::QueryResult::DeduplicateColumns(names);
    auto output = std::make_shared<std::vector<OutputColumn>>();
    for (size_t i = 0; i < names.size(); i++) {
        layout->columns.push_back(
            {names[i].GetIdentifierName(), context.types[i], i, KindOf(context.types[i])});
        output->push_back(DescribeOutput(layout->columns.back(), options_, "cast it in the query"));
    }
    layout->output = output;
    layout->memory = std::make_shared<HostMemory>(device_);
    return std::move(layout);
}

duckdb::unique_ptr<duckdb::ResultFormatLocalState> PieceFormat::InitLocal(duckdb::ResultFormatGlobalState &) {
    return duckdb::make_uniq<GrowingPiece>();
}

void PieceFormat::AppendToUnit(duckdb::ResultFormatGlobalState &global, duckdb::ResultFormatLocalState &local,
                               duckdb::DataChunk &chunk) {
    const auto &layout = global.Cast<PieceLayout>();
    Piece &piece = local.Cast<GrowingPiece>().piece;
    if (piece.columns.empty()) {
        for (const TableColumn &column : layout.columns) {
            piece.columns.emplace_back(column, layout.memory);
        }
    }
    for (size_t i = 0; i < piece.columns.size(); i++) {
        piece.columns[i].Append(chunk.data[i], chunk.size());
    }
    piece.rows += chunk.size();
}

bool PieceFormat::IsUnitFinished(duckdb::ResultFormatLocalState &local) {
    const Piece &piece = local.Cast<GrowingPiece>().piece;
    // Of many columns, when the chunks that each has taken are mostly used.
    const uint64_t bytes = piece.Bytes();
    return piece.rows > 0 && bytes >= FULL_PIECE_BYTES &&
           (4 * bytes >= 3 * piece.HeldBytes() || bytes >= MOST_PIECE_BYTES);
}

duckdb::unique_ptr<duckdb::ResultUnit> PieceFormat::FinishUnit(duckdb::ResultFormatGlobalState &,
                                                               duckdb::ResultFormatLocalState &local) {
    Piece &piece = local.Cast<GrowingPiece>().piece;
    if (piece.rows == 0) {
        return nullptr;
    }
    auto finished = duckdb::make_uniq<Piece>(std::move(piece));
    piece = Piece();
    return duckdb::make_uniq<PieceUnit>(std::move(finished));
}

duckdb::unique_ptr<Piece> PieceFormat::UnpackUnit(duckdb::unique_ptr<duckdb::ResultUnit> unit) {
    return unit ? std::move(unit->Cast<PieceUnit>().piece) : nullptr;
}

} // namespace rawduck::gpu
