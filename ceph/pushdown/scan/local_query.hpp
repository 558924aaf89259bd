//! The pushed part of a query on one object, in the client: for objects that no OSD answers for.
#pragma once

#include "ceph/pushdown/scan/kept_rows.hpp"
#include "ceph/pushdown/scan/offload_bind_data.hpp"

#include "duckdb/main/connection.hpp"
#include "duckdb/main/query_result_stream.hpp"

namespace rawduck_ceph {

//! Runs on a connection of its own, with the settings and the pinned versions of the query.
class LocalQuery {
  public:
    //! `join_filters`: over the scan's columns; may be null.
    LocalQuery(duckdb::ClientContext &context, const OffloadBindData &data, const CallTarget &target,
               duckdb::optional_ptr<const duckdb::TableFilterSet> join_filters);

    //! False: there are no more rows. Throws what reading throws, but not before all rows that precede the error were
    //! taken: what is above the scan may need no more.
    bool Next(duckdb::DataChunk &chunk);

  private:
    //! DuckDB's errors about the content of a file do not name the file.
    [[noreturn]] void ThrowWithPath(const duckdb::ErrorData &error) const;

    const std::string path_;
    const std::shared_ptr<KeptRows> rows_ = std::make_shared<KeptRows>();
    duckdb::Connection connection_;
    //! Its rows are dropped: how many it buffers limits how far the query runs ahead.
    std::unique_ptr<duckdb::QueryResultStream<>> stream_;
};

} // namespace rawduck_ceph
