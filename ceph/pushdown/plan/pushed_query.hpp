//! From a piece of DuckDB's plan to a request for the object class, or to the reason why there is none.
#pragma once

#include "ceph/protocol/messages.hpp"

#include "duckdb/planner/expression/bound_aggregate_expression.hpp"
#include "duckdb/planner/operator/logical_aggregate.hpp"
#include "duckdb/planner/operator/logical_get.hpp"
#include "duckdb/planner/operator/logical_projection.hpp"

#include <unordered_map>

namespace rawduck_ceph {

//! Why something stays where it is. Never leaves the optimizer.
struct NotPushable {
    std::string why;
};

//! Collects the request for one scan. Expressions are over the scan's columns, or over projections above it,
//! which are named first and then folded in.
class PushedQuery {
  public:
    //! Starts with the filters that are in the scan itself. Throws NotPushable.
    PushedQuery(duckdb::ClientContext &context, duckdb::LogicalGet &get);

    void AddProjection(duckdb::LogicalProjection &projection);
    //! Throws NotPushable, as all of what follows.
    void AddFilter(const duckdb::Expression &filter);
    //! Returns the output's position.
    size_t AddOutput(const duckdb::Expression &expression);
    size_t AddGroup(const duckdb::Expression &expression);
    //! A column of the scan, by its position in GetColumnIds().
    size_t AddColumn(size_t position);
    //! sum, count, min or max over the rows of one object. Returns the output's position.
    size_t AddAggregate(const std::string &function, const duckdb::BoundAggregateExpression &aggregate,
                        const duckdb::LogicalType &type);

    Request request;
    duckdb::vector<duckdb::LogicalType> types; //!< of the outputs
    //! Over the scan's columns.
    std::vector<duckdb::unique_ptr<duckdb::Expression>> filters, groups;

  private:
    std::string Sql(const duckdb::Expression &expression);
    //! Replaces references to projections by what they stand for.
    duckdb::unique_ptr<duckdb::Expression> Folded(const duckdb::Expression &expression) const;
    size_t AddOutputSql(const std::string &sql, const duckdb::LogicalType &type);

    duckdb::ClientContext &context_;
    duckdb::LogicalGet &get_;
    std::unordered_map<duckdb::idx_t, duckdb::LogicalProjection *> projections_;
};

} // namespace rawduck_ceph
