//! From a request to the one statement that it stands for. What the request contains
//! are expressions; they are parsed one by one and only what is on the list below is
//! let through, so that no request can reach anything but the columns of its object.
//! The client builds from the same function what it reads itself instead.
#pragma once

#include "ceph/protocol/messages.hpp"

#include "duckdb/parser/statement/select_statement.hpp"

namespace rawduck_ceph {

//! A request, parsed once for all the objects that it is asked of. Thread-safe.
class PushedStatement {
  public:
    //! Throws duckdb::Exception for anything that is not allowed or does not parse.
    explicit PushedStatement(const Request &request);

    //! `path` is read with read_parquet.
    duckdb::unique_ptr<duckdb::SelectStatement> Over(const std::string &path) const;

  private:
    duckdb::unique_ptr<duckdb::SelectStatement> statement_; //!< over no path yet
};

//! May this expression travel? Throws duckdb::PermissionException saying what may not.
void CheckExpression(const duckdb::ParsedExpression &expression);

//! Columns, outputs and casts have these types only: flat, and with one spelling.
bool IsPushableType(const duckdb::LogicalType &type);

} // namespace rawduck_ceph
