//! gpu_segments(table): the plan of a scan onto a GPU, as rows.
#include "gpu/plan/table_plan.hpp"
#include "gpu/sql/functions.hpp"

#include "extension/sql/row_function.hpp"

namespace rawduck::gpu {
namespace {

using duckdb::LogicalType;
using duckdb::Value;

Value ReasonOf(const PlannedColumn &column) {
    return column.IsDecoded() ? Value(LogicalType::VARCHAR) : Value(column.reason);
}

duckdb::vector<Value> RowOf(const PlannedRowGroup &group, const TableColumn &column,
                            const PlannedColumn &planned, const PlannedSegment &segment) {
    const bool has_block = segment.block >= 0;
    return {Value::UBIGINT(group.index),
            Value(column.name),
            Value(column.type.ToString()),
            Value(segment.is_validity ? "validity" : "data"),
            Value::UBIGINT(segment.row_start),
            Value::UBIGINT(segment.rows),
            Value::UBIGINT(group.rows),
            Value::UBIGINT(group.visible_rows),
            Value(duckdb::CompressionTypeToString(segment.compression)),
            Value::BOOLEAN(segment.is_persistent),
            has_block ? Value::BIGINT(segment.block) : Value(LogicalType::BIGINT),
            has_block ? Value::UBIGINT(segment.offset) : Value(LogicalType::UBIGINT),
            Value::UBIGINT(segment.byte_count),
            Value(planned.IsDecoded() ? "gpu" : "duckdb"),
            ReasonOf(planned)};
}

//! For what has no segments that a plan names: nested and generated columns, rows of this transaction.
duckdb::vector<Value> RowWithoutSegments(Value group, const TableColumn &column, uint64_t rows,
                                         uint64_t visible_rows, const std::string &reason,
                                         const char *route = "duckdb") {
    return {std::move(group),
            Value(column.name),
            Value(column.type.ToString()),
            Value("data"),
            Value::UBIGINT(0),
            Value::UBIGINT(rows),
            Value::UBIGINT(rows),
            Value::UBIGINT(visible_rows),
            Value(LogicalType::VARCHAR),
            Value(LogicalType::BOOLEAN),
            Value(LogicalType::BIGINT),
            Value(LogicalType::UBIGINT),
            Value(LogicalType::UBIGINT),
            Value(route),
            Value(reason)};
}

Rows SegmentRows(duckdb::ClientContext &context, const Arguments &arguments) {
    TablePlan plan = DescribeTable(context, arguments.Text(0, "table"), {});
    Rows rows;
    PlanRowGroups(context, plan, [&](const PlannedRowGroup &group) {
        for (size_t i = 0; i < plan.columns.size(); i++) {
            const PlannedColumn &planned = group.columns[i];
            for (const PlannedSegment &segment : planned.segments) {
                rows.push_back(RowOf(group, plan.columns[i], planned, segment));
            }
            if (planned.segments.empty()) {
                rows.push_back(RowWithoutSegments(Value::UBIGINT(group.index), plan.columns[i], group.rows,
                                                  group.visible_rows, planned.reason));
            }
        }
    });
    for (const TableColumn &column : plan.columns) {
        if (plan.local_rows > 0) {
            rows.push_back(RowWithoutSegments(Value(LogicalType::UBIGINT), column, plan.local_rows,
                                              plan.local_rows, "rows of this transaction"));
        }
    }
    for (const TableColumn &column : plan.generated) {
        rows.push_back(RowWithoutSegments(Value(LogicalType::UBIGINT), column, 0, 0,
                                          "generated: computed, not stored", "query"));
    }
    return rows;
}

} // namespace

void RegisterSegmentsFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature;
    signature.AddParameter("table", LogicalType::VARCHAR);
    RegisterRowFunction(
        loader,
        {"gpu_segments",
         "Where the rows of a table lie, as the transaction sees them, and which way gpu.scan takes for "
         "them: 'gpu' "
         "reads the compressed blocks and decodes them by kernels, 'duckdb' lets DuckDB scan that column of "
         "that row "
         "group in the same transaction",
         "SELECT column_name, route, reason, sum(bytes) FROM gpu_segments('lineitem') GROUP BY ALL",
         signature,
         {{"row_group", LogicalType::UBIGINT,
           "Its number; NULL: rows of this transaction, not committed, or a generated column"},
          {"column_name", LogicalType::VARCHAR, "The column"},
          {"column_type", LogicalType::VARCHAR, "Its type"},
          {"part", LogicalType::VARCHAR, "data, or validity: which values are NULL"},
          {"first_row", LogicalType::UBIGINT, "Of the segment, within the row group"},
          {"rows", LogicalType::UBIGINT, "Of the segment"},
          {"row_group_rows", LogicalType::UBIGINT, "Of the row group, deleted ones included"},
          {"visible_rows", LogicalType::UBIGINT, "Of the row group, those that the transaction sees"},
          {"codec", LogicalType::VARCHAR, "DuckDB's name of it; NULL: no segments are listed"},
          {"persistent", LogicalType::BOOLEAN, "Whether a checkpoint has written it"},
          {"block", LogicalType::BIGINT, "In the database file; NULL: none, as for constants"},
          {"block_offset", LogicalType::UBIGINT, "Bytes in the block, behind its header"},
          {"bytes", LogicalType::UBIGINT, "Of the segment, compressed"},
          {"route", LogicalType::VARCHAR,
           "gpu or duckdb; the same for a whole column of a row group. query: a generated column, which "
           "gpu.query gives"},
          {"reason", LogicalType::VARCHAR, "Why DuckDB scans it; NULL: it does not"}},
         SegmentRows});
}

} // namespace rawduck::gpu
