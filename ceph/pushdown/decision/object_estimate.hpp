//! What a scan's first object tells about all of them: how much a filter lets through, how many groups there
//! are, how large columns are. Rough, but from the object's own metadata rather than from nothing.
#pragma once

#include "ceph/parquet/parquet_summary.hpp"
#include "ceph/pushdown/decision/offload_decision.hpp"
#include "ceph/pushdown/plan/pushed_query.hpp"
#include "ceph/pushdown/scan/object_calls.hpp"

#include "duckdb/planner/operator/logical_get.hpp"

namespace rawduck_ceph {

class ObjectEstimate {
  public:
    //! Reads the metadata of the scan's first object, unless it is known from before. Throws Error.
    ObjectEstimate(duckdb::ClientContext &context, const duckdb::LogicalGet &get, CallTarget first);

    bool IsOf(const duckdb::LogicalGet &get) const { return &get == &get_; }
    //! False where the object has no metadata that we understand;
    //! then nothing else may be asked but ObjectBytes().
    bool Known() const { return summary_ != nullptr; }
    uint64_t ObjectBytes() const { return object_bytes_; }
    uint64_t Rows() const { return summary_->rows; }
    //! Of the object, taken by the columns that the request needs.
    uint64_t ColumnBytes(const Request &request) const;
    //! How many of the rows get through all of these filters, between 0 and 1.
    double Selectivity(const std::vector<const duckdb::Expression *> &filters) const;
    //! The most groups by these expressions that one object can
    //! have, when it has that many rows. False: nobody knows.
    bool Groups(const std::vector<const duckdb::Expression *> &by, uint64_t rows, uint64_t &groups) const;
    //! Reads up to 512 KiB of the object, and throws them away, to learn how fast the link is. Throws Error.
    void TryLink() const;

  private:
    struct Range;

    //! The column of the scan that it is, perhaps under a cast; false when it is something else.
    bool Column(const duckdb::Expression &expression, duckdb::idx_t &column) const;
    //! 0: unknown.
    uint64_t Distinct(duckdb::idx_t column) const;
    //! Of a column's values, lowest and highest. False: not known.
    bool Limits(duckdb::idx_t column, Range &range) const;
    //! Whether it is a comparison of a column with a constant; narrows the column's range then.
    bool Narrow(const duckdb::Expression &filter, std::map<duckdb::idx_t, Range> &ranges) const;
    double One(const duckdb::Expression &filter) const;

    duckdb::ClientContext &context_;
    const duckdb::LogicalGet &get_;
    const CallTarget first_;
    uint64_t object_bytes_ = 0;
    uint64_t object_version_ = 0;
    std::shared_ptr<const ParquetSummary> summary_;
};

//! What a decision needs to know of a pushed query. `rows_out`: of all answers together, by DuckDB's own
//! estimate, for where the objects do not tell; `rows_known` false: not even that.
ScanEstimate EstimateScan(const ObjectEstimate &object, size_t objects, const PushedQuery &query,
                          uint64_t rows_out, bool rows_known);

} // namespace rawduck_ceph
