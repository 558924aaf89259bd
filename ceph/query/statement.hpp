//! From a request to its SELECT statement. The request's expressions are parsed one by one and checked
//! against an allowlist, so that a request can access nothing but the columns of its object. The client
//! builds the same statement for objects that it reads itself.
#pragma once

#include "ceph/protocol/messages.hpp"

#include "duckdb/parser/statement/select_statement.hpp"

namespace rawduck_ceph {

//! A request, parsed once for all objects. Thread-safe.
class PushedStatement {
  public:
    //! Throws duckdb::Exception for anything that is not allowed or does not parse.
    explicit PushedStatement(const Request &request);

    //! The statement with read_parquet(path) as its source.
    duckdb::unique_ptr<duckdb::SelectStatement> ForFile(const std::string &path) const;

  private:
    duckdb::unique_ptr<duckdb::SelectStatement> statement_; //!< with an empty path
};

//! Throws duckdb::PermissionException, which names the part, unless the whole expression is allowed.
void CheckExpression(const duckdb::ParsedExpression &expression);

//! An expression of a request as the class understands it, with its parser whatever the session's is. Throws
//! duckdb::Exception for anything that is not allowed or does not parse.
duckdb::unique_ptr<duckdb::ParsedExpression> ParseRequestExpression(const std::string &sql);

//! Whether columns, outputs and casts may have this type: flat types without aliases and collations.
bool IsPushableType(const duckdb::LogicalType &type);

} // namespace rawduck_ceph
