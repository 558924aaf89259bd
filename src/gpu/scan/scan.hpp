//! A scan of a table onto a device: batches, exact at the snapshot of the transaction in which it began.
//!
//! What is decoded is decided and leased when the scan begins, and stays right however long it takes. What DuckDB
//! scans is scanned when its batch is made, in the same transaction: that has to be open still, and must not have
//! changed rows of the database meanwhile. Each change is an entry in its undo buffer, but one of what it has changed
//! before, which DuckDB writes over: of such columns of row groups the scan keeps fingerprints, and scans them twice.
//! Rows that the transaction itself had added are copied at the beginning.
#pragma once

#include "gpu/pipeline/window_decoder.hpp"
#include "gpu/plan/table_plan.hpp"
#include "gpu/scan/batch_source.hpp"

#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace rawduck::gpu {

class Scan final : public BatchSource {
  public:
    //! Plans in the context's active transaction. Called by a function that runs in it, with the context's lock held.
    Scan(duckdb::ClientContext &context, TablePlan plan, const ScanOptions &options);

    Step Next(std::shared_ptr<Batch> &batch) override;

  private:
    //! Row groups that are decoded together.
    using Window = std::vector<const PlannedRowGroup *>;

    //! What becomes the next window.
    struct NextWindow {
        Window groups;
        std::vector<RowGroupJob> jobs; //!< of each of them: its decoded columns
        std::set<uint64_t> blocks;
        uint64_t rows = 0;
        uint64_t decoded_bytes = 0;
    };

    //! Reading and decoding begin while the rest is planned.
    void AddGroup(const PlannedRowGroup &group);
    void FinishWindow();
    //! Makes the next row group wait for its batch, where it is decoded by the end of a TURN.
    void Proceed();
    bool TakeWindow();
    void Report(const PlannedRowGroup &group);
    //! Puts decoded columns among those of the row group.
    void AddDecoded(const PlannedRowGroup &group, std::vector<ColumnRows> decoded, QueuedRows &rows);
    void AddScanned(const PlannedRowGroup &group, QueuedRows &rows);
    //! Columns of row groups that may have updates of this transaction.
    void NoteOwnUpdates(duckdb::ClientContext &context);
    [[noreturn]] void ThrowChanged() const;
    //! Runs in the scan's transaction, or throws InvalidInputException when that is over or has changed rows.
    void InTransaction(const std::function<void(duckdb::ClientContext &context)> &action);

    std::mutex mutex_;
    std::shared_ptr<Device> device_;
    const std::shared_ptr<void> freed_memory_ = device_->KeepFreedMemory();
    duckdb::shared_ptr<duckdb::ClientContext> context_;
    uint64_t transaction_; //!< its number
    uint64_t
        undo_bytes_; //!< of its undo buffer: grows with the first change of each column of some committed rows
    TablePlan plan_;
    std::shared_ptr<const std::vector<OutputColumn>> layout_;
    std::unique_ptr<BlockSource> blocks_;
    NextWindow next_;
    std::deque<Window> windows_; //!< those that have not been taken
    std::unique_ptr<WindowDecoder> decoder_;
    Window taken_; //!< from the decoder; empty: none
    std::deque<std::vector<ColumnRows>>
        taken_rows_; //!< of its last row groups: those that do not wait for a batch
    BatchBuilder builder_;
    uint64_t batch_rows_;
    std::optional<QueuedRows> local_rows_;
    std::map<std::pair<uint64_t, size_t>, uint64_t> fingerprints_; //!< by row group and column, when it began
    BatchReport report_;                                           //!< of what no batch has reported
};

} // namespace rawduck::gpu
