//! From a part of DuckDB's plan to a request for the object class, or to the reason why it cannot be pushed.
#pragma once

#include "ceph/protocol/messages.hpp"
#include "ceph/pushdown/scan/plain_query.hpp"

#include "duckdb/planner/expression/bound_aggregate_expression.hpp"
#include "duckdb/planner/operator/logical_aggregate.hpp"
#include "duckdb/planner/operator/logical_filter.hpp"
#include "duckdb/planner/operator/logical_get.hpp"
#include "duckdb/planner/operator/logical_projection.hpp"

#include <string>
#include <unordered_map>
#include <vector>

namespace rawduck_ceph {

//! Why something cannot be pushed. Thrown and caught inside of the optimizer.
struct NotPushable {
    std::string why;
};

//! Builds the request for one scan. Expressions refer to the scan's columns, or to projections above it,
//! which are added first and then inlined.
class PushedQuery {
  public:
    //! Adds the scan's own filters. Throws NotPushable, also where a setting changes what expressions mean.
    PushedQuery(duckdb::ClientContext &context, duckdb::LogicalGet &get);

    void AddProjection(duckdb::LogicalProjection &projection);
    //! An operator above the scan, from the lowest upwards: an upper one may fail for rows that a lower one
    //! removes. Throws NotPushable, like the functions below.
    void AddFilter(const duckdb::LogicalFilter &filter);
    //! Filters with which the scan may skip rows that a filter above it removes: for a query without the latter.
    //! Leaves out those that cannot be pushed.
    void AddOptionalFilters();
    //! Returns the output's position.
    size_t AddOutput(const duckdb::Expression &expression);
    //! Adds the group as an output, as a column of `table`. Returns what the plan groups by: this column, or the
    //! compressed form of it, which the optimizer has chosen.
    duckdb::unique_ptr<duckdb::Expression> AddGroup(const duckdb::Expression &expression,
                                                    duckdb::TableIndex table);
    //! A sort key. An order-preserving compression is left out.
    size_t AddSortKey(const duckdb::Expression &expression);
    //! A column of the scan, by its position in GetColumnIds().
    size_t AddColumn(size_t position);
    //! `function`: sum, count, min or max. Returns the output's position.
    size_t AddAggregate(const std::string &function, const duckdb::BoundAggregateExpression &aggregate,
                        const duckdb::LogicalType &type);

    Request request;
    //! The same for an object that is read.
    std::shared_ptr<PlainQuery> plain;
    duckdb::vector<duckdb::LogicalType> types; //!< of the outputs
    //! Over the scan's columns, for estimates.
    std::vector<duckdb::unique_ptr<duckdb::Expression>> filters, groups;

  private:
    //! The expression in SQL, which is bound again to the same expression. Adds the columns that it uses to the
    //! request.
    std::string ToSql(const duckdb::Expression &expression);
    //! Throws NotPushable unless OSDs have these columns, by their position in the table.
    void RequirePushable(const std::vector<size_t> &columns) const;
    void RequireRoundTrip(const duckdb::Expression &expression, const std::string &sql,
                          const std::vector<size_t> &columns) const;
    //! The scan's column that a reference of the plan is to.
    duckdb::optional_ptr<const duckdb::ColumnIndex> ColumnOf(const duckdb::ColumnBinding &binding) const;
    //! A copy in which references to projections are replaced by their expressions.
    duckdb::unique_ptr<duckdb::Expression> Inlined(const duckdb::Expression &expression) const;
    //! The aggregate as the class binds it: the built-in function for the argument's type. `argument` and
    //! `filter` may be null.
    duckdb::unique_ptr<duckdb::Expression> Bound(const std::string &function,
                                                 duckdb::unique_ptr<duckdb::Expression> argument,
                                                 duckdb::unique_ptr<duckdb::Expression> filter) const;
    //! The aggregate of a single row.
    static duckdb::unique_ptr<duckdb::Expression>
    AggregateOfRow(const std::string &function, duckdb::optional_ptr<const duckdb::Expression> argument,
                   duckdb::optional_ptr<const duckdb::Expression> filter);
    void AddFilterSql(const duckdb::Expression &filter);
    size_t AddOutputSql(const std::string &sql, const duckdb::LogicalType &type);

    duckdb::ClientContext &context_;
    duckdb::LogicalGet &get_;
    std::unordered_map<duckdb::idx_t, duckdb::LogicalProjection *> projections_;
};

} // namespace rawduck_ceph
