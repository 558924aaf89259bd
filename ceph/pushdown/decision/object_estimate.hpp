//! Estimates from the metadata of a scan's first object, for all of its objects: how many rows pass
//! a filter, how many groups there are, how large columns are. Pure: everything that has to be
//! fetched is in ObjectMetadata.
#pragma once

#include "ceph/pushdown/decision/object_metadata.hpp"
#include "ceph/pushdown/decision/offload_decision.hpp"
#include "ceph/pushdown/plan/pushed_query.hpp"

#include "duckdb/planner/operator/logical_get.hpp"

#include <map>

namespace rawduck_ceph {

class ObjectEstimate {
  public:
    ObjectEstimate(duckdb::ClientContext &context, const duckdb::LogicalGet &get,
                   const ObjectMetadata &metadata);

    //! False where the object has no metadata that we understand. Then only ObjectBytes() may be called.
    bool HasSummary() const { return summary_ != nullptr; }
    uint64_t ObjectBytes() const { return object_bytes_; }
    uint64_t Rows() const { return summary_->rows; }
    //! Stored bytes of the columns that the request needs.
    uint64_t ColumnBytes(const Request &request) const;
    //! The share of rows that pass all of these filters, between 0 and 1.
    double Selectivity(const std::vector<const duckdb::Expression *> &filters) const;
    //! An upper bound of the groups by these expressions in an object with so many rows. False: not known.
    bool EstimateGroups(const std::vector<const duckdb::Expression *> &by, uint64_t rows,
                        uint64_t &groups) const;

  private:
    struct Range;

    //! The column of the scan that the expression is. False when it is something else.
    bool FindColumn(const duckdb::Expression &expression, duckdb::idx_t &column) const;
    //! 0: unknown.
    uint64_t DistinctValues(duckdb::idx_t column) const;
    //! The lowest and the highest value of a column. False: not known.
    bool ColumnRange(duckdb::idx_t column, Range &range) const;
    //! Narrows the column's range when the filter is a comparison of a column with a constant.
    //! False: it is not.
    bool NarrowRange(const duckdb::Expression &filter, std::map<duckdb::idx_t, Range> &ranges) const;
    //! Of one condition that NarrowRange does not take.
    double ConditionSelectivity(const duckdb::Expression &filter) const;

    duckdb::ClientContext &context_;
    const duckdb::LogicalGet &get_;
    const uint64_t object_bytes_;
    const std::shared_ptr<const ParquetSummary> summary_;
};

//! `rows_out`: the rows of all replies together by DuckDB's own estimate, used where the object's metadata
//! does not tell; `rows_known` false: DuckDB's estimate is unreliable too.
ScanEstimate EstimateScan(const ObjectEstimate &object, size_t objects, const PushedQuery &query,
                          uint64_t rows_out, bool rows_known);

} // namespace rawduck_ceph
