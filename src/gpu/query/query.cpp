#include "gpu/query/query.hpp"

#include "gpu/device/open_device.hpp"

#include "duckdb/common/enums/statement_type.hpp"
#include "duckdb/common/exception.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/query_parameters.hpp"
#include "duckdb/main/statement_iterator.hpp"
#include "duckdb/parser/sql_statement.hpp"

#include <algorithm>
#include <chrono>

namespace rawduck::gpu {
namespace {

using duckdb::QueryResultState;
using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

//! A statement that writes would be undone with the caller's transaction when its batches are not read to the end.
duckdb::unique_ptr<duckdb::SQLStatement> OnlySelect(duckdb::ClientContext &context, const std::string &sql) {
    auto statements = context.IterateStatements(sql);
    auto statement = statements.Peek() ? statements.GetStatement() : nullptr;
    if (!statement) {
        throw duckdb::InvalidInputException("gpu.query runs one SELECT, and this is no statement: \"%s\"",
                                            sql);
    }
    if (statements.Peek()) {
        throw duckdb::InvalidInputException("gpu.query runs one statement, and these are several; run the "
                                            "others by connection.execute: %s",
                                            sql);
    }
    if (statement->type == duckdb::StatementType::MULTI_STATEMENT) {
        throw duckdb::InvalidInputException(
            "gpu.query runs one SELECT, and DuckDB makes several statements of "
            "this, as of a PIVOT whose ON has no IN (...): %s",
            sql);
    }
    if (statement->type != duckdb::StatementType::SELECT_STATEMENT) {
        throw duckdb::InvalidInputException(
            "gpu.query runs a SELECT, and this is %s; run it by connection.execute, and query what it leaves",
            duckdb::StatementTypeToString(statement->type));
    }
    return statement;
}

} // namespace

Query::Query(duckdb::ClientContext &context, std::string sql, QueryParameterValues parameters,
             const ScanOptions &options)
    : device_(OpenDevice(options.device)), context_(context.shared_from_this()), sql_(std::move(sql)),
      parameters_(std::move(parameters)), options_(options), copied_pieces_(device_) {}

Query::~Query() {
    if (stream_ && stream_->IsOpen()) {
        // To close waits for the threads, and those look for an interrupt between chunks, but not for a close. No other
        // statement is interrupted: there is none while the stream is open.
        context_->Interrupt();
        stream_.reset();
        context_->ClearInterrupt();
    }
}

void Query::Begin() {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto statement = OnlySelect(*context_, sql_);
    if (statement->named_param_map.empty() && !parameters_.empty()) {
        throw duckdb::InvalidInputException("the query has no parameters, and %llu values were given",
                                            parameters_.size());
    }
    duckdb::shared_ptr<duckdb::ResultFormat> format =
        duckdb::make_shared_ptr<PieceFormat>(options_.output, device_);
    auto result =
        context_->Submit(std::move(statement), parameters_, duckdb::QueryParameters(std::move(format)));
    result->ThrowIfError();
    stream_ = std::make_unique<duckdb::QueryResultStream<PieceFormat>>(std::move(result));
    const PieceLayout &layout = stream_->FormatState();
    layout_ = layout.output;
    memory_ = layout.memory;
    builder_ = std::make_unique<BatchBuilder>(layout_, device_);
    queued_characters_.assign(layout_->size(), 0);
}

void Query::Add(duckdb::unique_ptr<Piece> piece) {
    for (size_t i = 0; i < piece->columns.size(); i++) {
        queued_characters_[i] += piece->columns[i].CharacterBytes();
    }
    bytes_copied_ += piece->Bytes();
    builder_->Add(copied_pieces_.ToDevice(std::move(piece)));
}

void Query::Proceed() {
    duckdb::unique_ptr<Piece> piece;
    QueryResultState state = stream_->TryFetch(piece);
    if (!piece && !duckdb::IsTerminal(state)) {
        state = stream_->ExecuteTask();
        if (state == QueryResultState::BLOCKED || state == QueryResultState::NO_TASKS_AVAILABLE) {
            stream_->WaitForTask();
        }
        // What has finished may have left pieces, so only TryFetch tells the end.
        state = state == QueryResultState::FINISHED ? QueryResultState::NOT_READY : state;
    }
    if (state == QueryResultState::EXECUTION_ERROR) {
        stream_->GetErrorObject().Throw();
    }
    if (piece) {
        Add(std::move(piece));
    } else if (state == QueryResultState::FINISHED) {
        stream_.reset();
    }
}

bool Query::HasEnough() const {
    return builder_->QueuedCount() >= options_.batch_rows ||
           std::any_of(queued_characters_.begin(), queued_characters_.end(),
                       [](uint64_t bytes) { return bytes > BatchBuilder::MOST_STRING_BYTES; });
}

std::shared_ptr<Batch> Query::BuildBatch() {
    copied_pieces_.Finish();
    auto batch = builder_->Build(options_.batch_rows);
    for (size_t i = 0; i < layout_->size(); i++) {
        queued_characters_[i] -= batch->columns[i].chars.Size();
        batch->report.routes.push_back({-1, i, batch->rows, ""});
    }
    batch->report.is_query = true;
    batch->report.counters.bytes_copied = bytes_copied_;
    batch->report.peak_waiting_bytes = memory_->Peak();
    bytes_copied_ = 0;
    return batch;
}

BatchSource::Step Query::Next(std::shared_ptr<Batch> &batch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto begin = Clock::now();
    while (stream_ && !HasEnough()) {
        if (Clock::now() - begin > TURN) {
            milliseconds_ += MillisecondsSince(begin);
            return Step::NOT_YET;
        }
        Proceed();
    }
    if (builder_->QueuedCount() == 0) {
        copied_pieces_.LetGo();
        return Step::END;
    }
    batch = BuildBatch();
    batch->report.milliseconds = milliseconds_ + MillisecondsSince(begin);
    milliseconds_ = 0;
    return Step::BATCH;
}

} // namespace rawduck::gpu
