//! The rows of a running query that nobody has taken yet. When a later row fails, DuckDB drops all rows that it has
//! buffered; these are still there. So the error need not come before the rows that precede it.
#pragma once

#include "duckdb/common/types/data_chunk.hpp"
#include "duckdb/planner/logical_operator.hpp"

#include <deque>
#include <memory>
#include <mutex>

namespace rawduck_ceph {

//! Thread-safe.
class KeptRows {
  public:
    //! Copies them.
    void Put(duckdb::DataChunk &rows);
    //! False: there are none.
    bool Take(duckdb::DataChunk &rows);

  private:
    std::mutex mutex_; //!< guards what follows; no other lock is taken while it is held
    std::deque<duckdb::unique_ptr<duckdb::DataChunk>> chunks_;
};

//! A plan with the rows of this one, which also puts them into `rows` as they are computed, one chunk after the other.
duckdb::unique_ptr<duckdb::LogicalOperator> KeepRows(duckdb::unique_ptr<duckdb::LogicalOperator> plan,
                                                     std::shared_ptr<KeptRows> rows);

} // namespace rawduck_ceph
