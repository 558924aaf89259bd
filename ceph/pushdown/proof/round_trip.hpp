//! Whether the class, which parses and binds an expression again, computes what the plan does.
#pragma once

#include "duckdb/main/client_context.hpp"
#include "duckdb/planner/expression.hpp"

#include <functional>
#include <string>

namespace rawduck_ceph {

//! The columns of the request: what the exported expression names, and the class casts to these types.
struct RequestSchema {
    duckdb::vector<duckdb::Identifier> names;
    duckdb::vector<duckdb::LogicalType> types;
};

//! The name of the column that an expression of the plan refers to; empty where it refers to none.
using ColumnName = std::function<std::string(const duckdb::Expression &reference)>;

//! Parses and binds `sql` over the columns as the class does, and compares the result with `original`: the same
//! functions over the same types with the same bound arguments, the same constants, the same columns. Returns an
//! empty text when they are the same, else the first part that is not. Constants are folded on both sides.
std::string RoundTripDifference(duckdb::ClientContext &context, const duckdb::Expression &original,
                                const std::string &sql, const RequestSchema &schema,
                                const ColumnName &column_name);

} // namespace rawduck_ceph
