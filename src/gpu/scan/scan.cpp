#include "gpu/scan/scan.hpp"

#include "common/invariant.hpp"
#include "gpu/device/open_device.hpp"
#include "gpu/plan/segments.hpp"
#include "gpu/scan/duckdb_rows.hpp"

#include "duckdb/common/exception.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/storage/buffer/block_handle.hpp"
#include "duckdb/storage/data_table.hpp"
#include "duckdb/storage/table/row_group_segment_tree.hpp"
#include "duckdb/storage/table/scan_state.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "duckdb/transaction/meta_transaction.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

namespace rawduck::gpu {
namespace {

ColumnRows CopyScanned(const HostColumn &scanned, Device &device) {
    std::vector<CopiedPiece> copies;
    ColumnRows rows = scanned.ToDevice(device, copies);
    RAWDUCK_INVARIANT(copies.empty(), "what is scanned lies in ordinary memory");
    return rows;
}

std::shared_ptr<const std::vector<OutputColumn>> LayoutOf(const TablePlan &plan,
                                                          const OutputOptions &options) {
    auto layout = std::make_shared<std::vector<OutputColumn>>();
    for (const TableColumn &column : plan.columns) {
        layout->push_back(DescribeOutput(column, options, "name the other columns, or cast it in gpu.query"));
    }
    return layout;
}

ColumnJob JobOf(const PlannedColumn &planned, const TableColumn &column) {
    ColumnJob job;
    job.kind = *column.kind;
    job.width = WidthOf(job.kind);
    job.is_text = column.type.id() == duckdb::LogicalTypeId::VARCHAR;
    for (const PlannedSegment &segment : planned.segments) {
        if (segment.covers_nulls) {
            continue;
        }
        SegmentJob added;
        added.codec = *segment.codec;
        added.block = segment.block < 0 ? 0 : static_cast<uint64_t>(segment.block);
        added.offset = segment.offset;
        added.byte_count = segment.byte_count;
        added.rows = segment.rows;
        added.most_characters = segment.most_characters;
        added.constant = segment.constant;
        (segment.is_validity ? job.validity : job.data).push_back(added);
    }
    return job;
}

//! Without the rows that it has added to tables, which nobody scans who has not asked for them.
uint64_t UndoBytes(duckdb::ClientContext &context, const TablePlan &plan) {
    auto &transaction = duckdb::DuckTransaction::Get(context, *plan.database);
    return transaction.GetUndoProperties().estimated_size - transaction.GetLocalStorage().EstimatedSize();
}

//! Which columns of a row group are decoded, or scanned by DuckDB.
std::vector<size_t> ColumnsOf(const PlannedRowGroup &group, bool are_decoded) {
    std::vector<size_t> columns;
    for (size_t i = 0; i < group.columns.size(); i++) {
        if (group.columns[i].IsDecoded() == are_decoded) {
            columns.push_back(i);
        }
    }
    return columns;
}

RowGroupJob JobOf(const PlannedRowGroup &group, const TablePlan &plan) {
    RowGroupJob job;
    job.rows = group.rows;
    for (const size_t column : ColumnsOf(group, true)) {
        job.columns.push_back(JobOf(group.columns[column], plan.columns[column]));
    }
    return job;
}

//! As many as the decoded columns take on the device at most, without what says which are NULL.
uint64_t DecodedBytes(const RowGroupJob &job) {
    constexpr uint64_t LENGTH_AND_OFFSET = sizeof(uint32_t) + sizeof(uint64_t);
    uint64_t bytes = 0;
    for (const ColumnJob &column : job.columns) {
        bytes += job.rows * (column.width > 0 ? column.width : LENGTH_AND_OFFSET);
        for (const SegmentJob &segment : column.data) {
            bytes += segment.most_characters;
        }
    }
    return bytes;
}

std::vector<size_t> AllColumns(const TablePlan &plan) {
    std::vector<size_t> columns(plan.columns.size());
    std::iota(columns.begin(), columns.end(), size_t{0});
    return columns;
}

} // namespace

Scan::Scan(duckdb::ClientContext &context, TablePlan plan, const ScanOptions &options)
    : device_(OpenDevice(options.device)), context_(context.shared_from_this()),
      transaction_(context.ActiveTransaction().global_transaction_id), undo_bytes_(UndoBytes(context, plan)),
      plan_(std::move(plan)), layout_(LayoutOf(plan_, options.output)), builder_(layout_, device_),
      batch_rows_(options.batch_rows) {
    PlanRowGroups(context, plan_, [&](const PlannedRowGroup &group) { AddGroup(group); });
    FinishWindow();
    blocks_ = blocks_ ? std::move(blocks_) : BlocksOf(plan_);
    NoteOwnUpdates(context);
    if (plan_.local_rows > 0) {
        local_rows_.emplace();
        for (const HostColumn &column : ScanLocalRows(context, plan_, AllColumns(plan_))) {
            local_rows_->columns.push_back(CopyScanned(column, *device_));
        }
        local_rows_->is_listed.assign(plan_.columns.size(), false);
        local_rows_->rows = local_rows_->columns.front().rows;
    }
}

void Scan::NoteOwnUpdates(duckdb::ClientContext &context) {
    if (!duckdb::DuckTransaction::Get(context, *plan_.database).GetUndoProperties().has_updates) {
        return;
    }
    for (const Window &window : windows_) {
        for (const PlannedRowGroup *group : window) {
            std::vector<size_t> columns = ColumnsOf(*group, false);
            columns.erase(std::remove_if(columns.begin(), columns.end(),
                                         [&](size_t i) { return !group->columns[i].has_updates; }),
                          columns.end());
            if (columns.empty()) {
                continue;
            }
            const auto scanned = ScanRowGroup(context, plan_, *group, columns);
            for (size_t i = 0; i < columns.size(); i++) {
                fingerprints_[{group->index, columns[i]}] = scanned[i].Fingerprint();
            }
        }
    }
}

void Scan::ThrowChanged() const {
    throw duckdb::InvalidInputException(
        "this transaction has changed rows since the scan of %s began, or a table, view or sequence of that "
        "database; do that after the last batch, or on another connection",
        plan_.name);
}

void Scan::InTransaction(const std::function<void(duckdb::ClientContext &context)> &action) {
    bool is_same = false, has_changed = false;
    context_->RunFunctionInTransaction([&] {
        is_same = context_->ActiveTransaction().global_transaction_id == transaction_;
        has_changed = is_same && UndoBytes(*context_, plan_) != undo_bytes_;
        if (is_same && !has_changed) {
            action(*context_);
        }
    });
    if (!is_same) {
        throw duckdb::InvalidInputException(
            "the transaction in which the scan of %s began is over; end it after the "
            "last batch, or scan without one of your own",
            plan_.name);
    }
    if (has_changed) {
        ThrowChanged();
    }
}

void Scan::AddGroup(const PlannedRowGroup &group) {
    constexpr uint64_t BLOCK_BYTES_MOST = 2 * Device::SLOT_BYTES;
    report_.pruned_row_groups += group.is_pruned ? 1 : 0;
    if (group.is_pruned || group.visible_rows == 0) {
        return;
    }
    RowGroupJob job = JobOf(group, plan_);
    const bool is_full = next_.rows >= batch_rows_ ||
                         next_.decoded_bytes + DecodedBytes(job) > WindowDecoder::WINDOW_BYTES_MOST ||
                         next_.blocks.size() * plan_.block_bytes >= BLOCK_BYTES_MOST;
    if (is_full) {
        FinishWindow();
    }
    next_.rows += group.visible_rows;
    next_.decoded_bytes += DecodedBytes(job);
    next_.blocks.merge(WantedBlocks(job));
    next_.groups.push_back(&group);
    next_.jobs.push_back(std::move(job));
}

void Scan::FinishWindow() {
    if (next_.groups.empty()) {
        return;
    }
    if (!decoder_) {
        blocks_ = BlocksOf(plan_);
        decoder_ = std::make_unique<WindowDecoder>(*blocks_, device_);
    }
    windows_.push_back(std::move(next_.groups));
    decoder_->Add(std::move(next_.jobs), std::move(next_.blocks), next_.decoded_bytes);
    next_ = {};
}

void Scan::AddDecoded(const PlannedRowGroup &group, std::vector<ColumnRows> decoded, QueuedRows &rows) {
    const std::vector<size_t> columns = ColumnsOf(group, true);
    for (size_t i = 0; i < columns.size(); i++) {
        rows.columns[columns[i]] = std::move(decoded[i]);
        rows.is_listed[columns[i]] = !group.visible.empty();
    }
    if (!group.visible.empty() && !columns.empty()) {
        const Memory visible = device_->Allocate(group.rows);
        device_->CopyIn(visible.Data(), group.visible.data(), group.rows);
        rows.listed_rows = device_->Allocate(group.rows * sizeof(uint32_t));
        device_->ListRows(visible.Data(), group.rows, reinterpret_cast<uint32_t *>(rows.listed_rows.Data()));
        report_.counters.bytes_copied += group.rows;
    }
}

void Scan::AddScanned(const PlannedRowGroup &group, QueuedRows &rows) {
    const std::vector<size_t> columns = ColumnsOf(group, false);
    if (columns.empty()) {
        return;
    }
    std::vector<HostColumn> scanned;
    InTransaction(
        [&](duckdb::ClientContext &context) { scanned = ScanRowGroup(context, plan_, group, columns); });
    for (size_t i = 0; i < columns.size(); i++) {
        const auto before = fingerprints_.find({group.index, columns[i]});
        if (before != fingerprints_.end() && before->second != scanned[i].Fingerprint()) {
            ThrowChanged();
        }
        rows.columns[columns[i]] = CopyScanned(scanned[i], *device_);
    }
    for (const size_t column : columns) {
        if (rows.columns[column].rows != group.visible_rows) {
            throw duckdb::InvalidInputException("row group %llu of %s has %llu rows by the plan and %llu by "
                                                "DuckDB's scan; please report it, and "
                                                "read the table by SQL",
                                                group.index, plan_.name, group.visible_rows,
                                                rows.columns[column].rows);
        }
    }
}

void Scan::Report(const PlannedRowGroup &group) {
    for (size_t i = 0; i < plan_.columns.size(); i++) {
        report_.routes.push_back(
            {static_cast<int64_t>(group.index), i, group.visible_rows, group.columns[i].reason});
    }
}

bool Scan::TakeWindow() {
    std::optional<DecodedWindow> decoded = decoder_->Next(TURN);
    if (decoded) {
        report_.counters.bytes_read += decoded->counters.bytes_read;
        report_.counters.bytes_copied += decoded->counters.bytes_copied;
        report_.counters.bytes_decoded += decoded->counters.bytes_decoded;
        taken_ = std::move(windows_.front());
        taken_rows_ = std::move(decoded->groups);
        windows_.pop_front();
    }
    return decoded.has_value();
}

void Scan::Proceed() {
    if (taken_.empty() && !TakeWindow()) {
        return;
    }
    const PlannedRowGroup &group = *taken_[taken_.size() - taken_rows_.size()];
    QueuedRows rows;
    rows.columns.resize(plan_.columns.size());
    rows.is_listed.assign(plan_.columns.size(), false);
    rows.rows = group.visible_rows;
    AddScanned(group, rows);
    AddDecoded(group, std::move(taken_rows_.front()), rows);
    Report(group);
    builder_.Add(std::move(rows));
    taken_rows_.pop_front();
    if (taken_rows_.empty()) {
        taken_.clear();
    }
}

BatchSource::Step Scan::Next(std::shared_ptr<Batch> &batch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto begin = std::chrono::steady_clock::now();
    const auto waited = [&] { return std::chrono::steady_clock::now() - begin; };
    while (builder_.QueuedCount() < batch_rows_ && !(taken_.empty() && windows_.empty())) {
        if (waited() >= TURN) {
            report_.milliseconds += std::chrono::duration<double, std::milli>(waited()).count();
            return Step::NOT_YET;
        }
        Proceed();
    }
    if (builder_.QueuedCount() < batch_rows_ && local_rows_) {
        for (size_t i = 0; i < plan_.columns.size(); i++) {
            report_.routes.push_back({-1, i, local_rows_->rows, "rows of this transaction"});
        }
        builder_.Add(std::move(*local_rows_));
        local_rows_.reset();
    }
    if (builder_.QueuedCount() == 0) {
        return Step::END;
    }
    batch = builder_.Build(batch_rows_);
    report_.path = blocks_->Path();
    report_.milliseconds += std::chrono::duration<double, std::milli>(waited()).count();
    batch->report = std::exchange(report_, {});
    return Step::BATCH;
}

} // namespace rawduck::gpu
