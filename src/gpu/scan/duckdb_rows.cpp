#include "gpu/scan/duckdb_rows.hpp"

#include "gpu/scan/host_column.hpp"

#include "duckdb/common/file_buffer.hpp"
#include "duckdb/common/types/data_chunk.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/storage/block_allocator.hpp"
#include "duckdb/storage/block_manager.hpp"
#include "duckdb/storage/data_table.hpp"
#include "duckdb/storage/table/row_group.hpp"
#include "duckdb/storage/table/row_group_collection.hpp"
#include "duckdb/storage/table/row_group_segment_tree.hpp"
#include "duckdb/storage/table/scan_state.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "duckdb/transaction/local_storage.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

namespace rawduck::gpu {
namespace {

//! Collects what `next` puts into a chunk until it is empty.
std::vector<ColumnRows> Collect(duckdb::ClientContext &context, const TablePlan &plan,
                                const std::vector<size_t> &columns, Device &device,
                                const std::function<void(duckdb::DataChunk &)> &next) {
    duckdb::vector<duckdb::LogicalType> types;
    std::vector<HostColumn> collected;
    const auto use = std::make_shared<HostMemoryUse>();
    for (const size_t column : columns) {
        types.push_back(plan.columns[column].type);
        collected.emplace_back(plan.columns[column], use);
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
    std::vector<ColumnRows> rows;
    for (const HostColumn &column : collected) {
        rows.push_back(column.ToDevice(device));
    }
    return rows;
}

duckdb::vector<duckdb::StorageIndex> StorageIndexes(const TablePlan &plan,
                                                    const std::vector<size_t> &columns) {
    duckdb::vector<duckdb::StorageIndex> indexes;
    for (const size_t column : columns) {
        indexes.emplace_back(plan.columns[column].storage_index);
    }
    return indexes;
}

class DatabaseBlocks final : public BlockSource {
  public:
    explicit DatabaseBlocks(const TablePlan &plan)
        : blocks_(*plan.blocks), allocator_(duckdb::BlockAllocator::Get(*plan.database)) {}

    uint64_t BlockBytes() const override { return blocks_.GetBlockAllocSize(); }

    void Read(uint64_t first_block, uint64_t count, uint8_t *to) override {
        const uint64_t bytes = count * BlockBytes();
        duckdb::FileBuffer buffer(allocator_, duckdb::FileBufferType::MANAGED_BUFFER, bytes, 0);
        blocks_.ReadBlocks(duckdb::QueryContext(), buffer, static_cast<duckdb::block_id_t>(first_block),
                           count);
        std::memcpy(to, buffer.InternalBuffer(), bytes);
    }

  private:
    duckdb::BlockManager &blocks_;
    duckdb::BlockAllocator &allocator_;
};

} // namespace

std::vector<ColumnRows> ScanRowGroup(duckdb::ClientContext &context, const TablePlan &plan,
                                     const PlannedRowGroup &group, const std::vector<size_t> &columns,
                                     Device &device) {
    auto &transaction = duckdb::DuckTransaction::Get(context, *plan.database);
    duckdb::TableScanState state;
    state.Initialize(StorageIndexes(plan, columns), &context);
    state.table_state.row_groups = plan.tree;
    const bool has_rows = duckdb::RowGroupCollection::InitializeScanInRowGroup(
        context, state.table_state, *plan.table->GetRowGroupCollection(), *group.node, 0,
        group.row_start + group.rows);
    return Collect(context, plan, columns, device, [&](duckdb::DataChunk &chunk) {
        if (has_rows) {
            group.node->GetNode().Scan(duckdb::TransactionData(transaction), state.table_state, chunk);
        }
    });
}

std::vector<ColumnRows> ScanLocalRows(duckdb::ClientContext &context, const TablePlan &plan,
                                      const std::vector<size_t> &columns, Device &device) {
    auto &transaction = duckdb::DuckTransaction::Get(context, *plan.database);
    auto &local = duckdb::LocalStorage::Get(transaction);
    duckdb::TableScanState state;
    const auto indexes = StorageIndexes(plan, columns);
    state.Initialize(indexes, &context);
    local.InitializeScan(*plan.table, state.local_state, nullptr);
    return Collect(context, plan, columns, device,
                   [&](duckdb::DataChunk &chunk) { local.Scan(state.local_state, indexes, chunk); });
}

std::unique_ptr<BlockSource> BlocksOf(const TablePlan &plan) {
    return std::make_unique<DatabaseBlocks>(plan);
}

} // namespace rawduck::gpu
