//! Where the rows of a stock DuckDB table lie, as one transaction sees them: row groups, the segments of each column,
//! which rows are visible, and for each column of a row group whether our kernels decode it or DuckDB scans it, and why.
//!
//! All of it is asked of the running engine, in the caller's transaction. A plan is a lease, too: while it lives, what
//! it has of row groups stays, and no block that it names is given to anything else, even when a checkpoint rewrites
//! the table or the table is dropped. (DuckDB does not reuse a block while somebody holds its BlockHandle.)
#pragma once

#include "gpu/plan/planned_column.hpp"

#include "duckdb/common/enums/expression_type.hpp"
#include "duckdb/common/types/value.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace duckdb {
class AttachedDatabase;
class BlockManager;
class ClientContext;
class DataTable;
class DuckTransaction;
class RowGroup;
class RowGroupSegmentTree;
template <class T> struct SegmentNode;
} // namespace duckdb

namespace rawduck::gpu {

struct PlannedRowGroup {
    uint64_t index = 0;
    uint64_t row_start = 0; //!< row id of the first row
    uint64_t rows = 0;
    uint64_t visible_rows = 0;
    //! Which rows are visible, a byte a row; empty: all.
    std::vector<uint8_t> visible;
    std::vector<PlannedColumn> columns; //!< as TablePlan::columns
    bool is_pruned = false;             //!< no row can satisfy the conditions

    duckdb::SegmentNode<duckdb::RowGroup> *node = nullptr; //!< lives in TablePlan::tree
    duckdb::shared_ptr<duckdb::RowGroup> lease;
};

//! `column op constant`. Prunes row groups by their statistics; rows are not filtered.
struct Condition {
    std::string column;
    duckdb::ExpressionType comparison;
    duckdb::Value constant; //!< cast to the column's type by the plan
};

//! A condition that statistics can be compared with, and the column's place in the table.
struct Prunable {
    uint64_t storage_index;
    duckdb::ExpressionType comparison;
    duckdb::Value constant;
};

//! Move-only, used by one thread at a time.
struct TablePlan {
    std::string name; //!< with its catalog and schema, quoted
    std::vector<TableColumn> columns;
    std::vector<TableColumn> generated; //!< columns that are computed, not stored; where none were named
    std::vector<Prunable> prunable;
    uint64_t local_rows = 0;  //!< added by this transaction, not committed, before its own deletes
    uint64_t block_bytes = 0; //!< of a block in the file, its header included

    // Released in the opposite order: handles of blocks and row groups first, the database last.
    duckdb::shared_ptr<duckdb::AttachedDatabase> database;
    duckdb::shared_ptr<duckdb::DataTable> table;
    duckdb::BlockManager *blocks = nullptr;
    duckdb::shared_ptr<duckdb::RowGroupSegmentTree> tree;
    std::deque<PlannedRowGroup> row_groups; //!< each stays where it is
};

//! What is said of a generated column where the columns of a scan are meant.
[[noreturn]] void ThrowGenerated(const std::string &column);

//! A plan without row groups: the table and its columns, all of them where none are named. Throws DuckDB's exceptions: no
//! such table or column, not a table of DuckDB's own storage, a generated column, a condition on a nested column.
TablePlan DescribeTable(duckdb::ClientContext &context, const std::string &table,
                        const std::vector<std::string> &columns,
                        const std::vector<Condition> &conditions = {});

//! The rest, as the transaction sees it that is active in the context. Calls `on_group` with each row group once it is
//! planned, in their order; before, with the first one at the latest, everything but the row groups is there.
void PlanRowGroups(duckdb::ClientContext &context, TablePlan &plan,
                   const std::function<void(const PlannedRowGroup &group)> &on_group);

} // namespace rawduck::gpu
