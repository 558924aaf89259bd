//! The pushed part of a query as a plan that reads one object, for objects that no OSD answers for: the same
//! bound expressions over the same scan as in the plan that was pushed, so with the same casts and errors.
#pragma once

#include "duckdb/planner/expression.hpp"
#include "duckdb/planner/operator/logical_get.hpp"

#include <string>
#include <vector>

namespace rawduck_ceph {

//! Expressions refer to the columns of the scan. Not changed after planning: thread-safe.
class PlainQuery {
  public:
    //! Copies what the scan was bound to, and its filters.
    explicit PlainQuery(const duckdb::LogicalGet &get);

    //! The conditions of each filter above the scan, the lowest filter first.
    std::vector<duckdb::vector<duckdb::unique_ptr<duckdb::Expression>>> filters;
    //! The values of one row: groups and columns, and for each partial aggregate that of this row alone. They
    //! refer to inputs.
    duckdb::vector<duckdb::unique_ptr<duckdb::Expression>> outputs;
    //! The partial aggregates of many rows; their outputs are the last ones, and the groups' the first ones.
    duckdb::vector<duckdb::unique_ptr<duckdb::Expression>> partials;
    //! Whether the rows of an object are aggregated. They are not where a sum may overflow in one object although
    //! the total fits: then the client adds up the rows of all objects, as it does where nothing is pushed.
    bool is_aggregated = false;

    //! Adds an expression over the scan that is evaluated for every row, as DuckDB evaluates what aggregates take
    //! and filter. Returns a reference to it.
    duckdb::unique_ptr<duckdb::Expression> AddInput(duckdb::unique_ptr<duckdb::Expression> input);

    //! The plan for the object at a path of the scan. `types`: of all outputs. `join_filters`: what joins have
    //! added to the scan since it was planned, by its columns; may be null.
    duckdb::unique_ptr<duckdb::LogicalOperator>
    PlanFor(duckdb::ClientContext &context, const std::string &path,
            const duckdb::vector<duckdb::LogicalType> &types,
            duckdb::optional_ptr<const duckdb::TableFilterSet> join_filters) const;

  private:
    duckdb::unique_ptr<duckdb::LogicalGet> ScanOf(const duckdb::LogicalGet &get) const;
    //! Puts the aggregation over a plan that returns the inputs. Returns references to groups and aggregates.
    duckdb::vector<duckdb::unique_ptr<duckdb::Expression>>
    Aggregate(duckdb::unique_ptr<duckdb::LogicalOperator> &plan) const;

    duckdb::unique_ptr<duckdb::LogicalGet> scan_;
    duckdb::vector<duckdb::unique_ptr<duckdb::Expression>> inputs_;
};

} // namespace rawduck_ceph
