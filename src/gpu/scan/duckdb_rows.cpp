#include "gpu/scan/duckdb_rows.hpp"

#include "extension/file_systems/storage_file_system.hpp"
#include "extension/memory/held_blocks.hpp"

#include "duckdb/common/file_buffer.hpp"
#include "duckdb/common/types/data_chunk.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/storage/block_allocator.hpp"
#include "duckdb/storage/block_manager.hpp"
#include "duckdb/storage/data_table.hpp"
#include "duckdb/storage/single_file_block_manager.hpp"
#include "duckdb/storage/storage_manager.hpp"
#include "duckdb/storage/table/row_group.hpp"
#include "duckdb/storage/table/row_group_collection.hpp"
#include "duckdb/storage/table/row_group_segment_tree.hpp"
#include "duckdb/storage/table/scan_state.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "duckdb/transaction/local_storage.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>

namespace rawduck::gpu {
namespace {

//! Collects what `next` puts into a chunk until it is empty.
std::vector<HostColumn> Collect(duckdb::ClientContext &context, const TablePlan &plan,
                                const std::vector<size_t> &columns,
                                const std::function<void(duckdb::DataChunk &)> &next) {
    duckdb::vector<duckdb::LogicalType> types;
    std::vector<HostColumn> collected;
    const auto memory = std::make_shared<HostMemory>();
    for (const size_t column : columns) {
        types.push_back(plan.columns[column].type);
        collected.emplace_back(plan.columns[column], memory);
    }
    duckdb::DataChunk chunk;
    chunk.Initialize(context, types);
    while (true) {
        chunk.Reset();
        next(chunk);
        if (chunk.size() == 0) {
            break;
        }
        for (size_t i = 0; i < collected.size(); i++) {
            collected[i].Append(chunk.data[i], chunk.size());
        }
    }
    return collected;
}

duckdb::vector<duckdb::StorageIndex> StorageIndexes(const TablePlan &plan,
                                                    const std::vector<size_t> &columns) {
    duckdb::vector<duckdb::StorageIndex> indexes;
    for (const size_t column : columns) {
        indexes.emplace_back(plan.columns[column].storage_index);
    }
    return indexes;
}

//! DuckDB reads into memory that is not its own.
class BorrowedBuffer final : public duckdb::FileBuffer {
  public:
    BorrowedBuffer(duckdb::BlockAllocator &allocator, uint8_t *data, uint64_t bytes)
        : FileBuffer(allocator, duckdb::FileBufferType::MANAGED_BUFFER, 0, 0) {
        internal_buffer = buffer = data;
        internal_size = size = bytes;
        owns_internal_buffer = false;
    }
};

//! Blocks of any file, by DuckDB's handle. DuckDB verifies their checksums, too.
class DatabaseBlocks final : public BlockSource {
  public:
    explicit DatabaseBlocks(const TablePlan &plan)
        : blocks_(*plan.blocks), allocator_(duckdb::BlockAllocator::Get(*plan.database)) {}

    const char *Path() const override { return "duckdb"; }
    uint64_t BlockBytes() const override { return blocks_.GetBlockAllocSize(); }

    void Read(const std::vector<BlockRange> &ranges) override {
        for (const BlockRange &range : ranges) {
            const uint64_t bytes = range.count * BlockBytes();
            BorrowedBuffer buffer(allocator_, range.to, bytes);
            blocks_.ReadBlocks(duckdb::QueryContext(), buffer, static_cast<duckdb::block_id_t>(range.first),
                               range.count);
            if (buffer.InternalBuffer() != range.to) { // a file that is mapped into memory
                std::memcpy(range.to, buffer.InternalBuffer(), bytes);
            }
        }
    }

  private:
    duckdb::BlockManager &blocks_;
    duckdb::BlockAllocator &allocator_;
};

//! Blocks of a file behind rawduck's queues, by the handle that DuckDB has open as long as the plan's database lives.
class QueuedBlocks final : public BlockSource {
  public:
    QueuedBlocks(const TablePlan &plan, StorageFile &file) : block_bytes_(plan.block_bytes), file_(file) {}

    const char *Path() const override { return is_in_memory_ ? "memory" : "queues"; }
    uint64_t BlockBytes() const override { return block_bytes_; }

    std::vector<StorageFile::MemoryPiece> Pin(const std::vector<BlockRange> &ranges, MemoryPinner &pinner,
                                              std::unique_ptr<StorageFile::Hold> &hold) override {
        auto pieces = file_.Pin(FileRanges(ranges), pinner, hold);
        is_in_memory_ = !pieces.empty();
        return pieces;
    }

    void Read(const std::vector<BlockRange> &ranges) override { file_.ReadRanges(FileRanges(ranges)); }

  private:
    std::vector<StorageFile::Range> FileRanges(const std::vector<BlockRange> &ranges) const {
        std::vector<StorageFile::Range> wanted;
        for (const BlockRange &range : ranges) {
            wanted.push_back({duckdb::SingleFileBlockManager::BLOCK_START + range.first * block_bytes_,
                              range.count * block_bytes_, reinterpret_cast<char *>(range.to)});
        }
        return wanted;
    }

    uint64_t block_bytes_;
    StorageFile &file_;
    std::atomic<bool> is_in_memory_{false};
};

} // namespace

std::vector<HostColumn> ScanRowGroup(duckdb::ClientContext &context, const TablePlan &plan,
                                     const PlannedRowGroup &group, const std::vector<size_t> &columns) {
    auto &transaction = duckdb::DuckTransaction::Get(context, *plan.database);
    duckdb::TableScanState state;
    state.Initialize(StorageIndexes(plan, columns), &context);
    state.table_state.row_groups = plan.tree;
    const bool has_rows = duckdb::RowGroupCollection::InitializeScanInRowGroup(
        context, state.table_state, *plan.table->GetRowGroupCollection(), *group.node, 0,
        group.row_start + group.rows);
    return Collect(context, plan, columns, [&](duckdb::DataChunk &chunk) {
        if (has_rows) {
            group.node->GetNode().Scan(duckdb::TransactionData(transaction), state.table_state, chunk);
        }
    });
}

std::vector<HostColumn> ScanLocalRows(duckdb::ClientContext &context, const TablePlan &plan,
                                      const std::vector<size_t> &columns) {
    auto &transaction = duckdb::DuckTransaction::Get(context, *plan.database);
    auto &local = duckdb::LocalStorage::Get(transaction);
    duckdb::TableScanState state;
    const auto indexes = StorageIndexes(plan, columns);
    state.Initialize(indexes, &context);
    local.InitializeScan(*plan.table, state.local_state, nullptr);
    return Collect(context, plan, columns,
                   [&](duckdb::DataChunk &chunk) { local.Scan(state.local_state, indexes, chunk); });
}

std::unique_ptr<BlockSource> BlocksOf(const TablePlan &plan) {
    const bool is_plain =
        plan.blocks && !plan.blocks->InMemory() && !plan.database->GetStorageManager().IsEncrypted();
    if (auto *const handle =
            is_plain ? dynamic_cast<StorageFileHandle *>(FileHandleOf(*plan.blocks)) : nullptr) {
        return std::make_unique<QueuedBlocks>(plan, handle->File());
    }
    return std::make_unique<DatabaseBlocks>(plan);
}

} // namespace rawduck::gpu
