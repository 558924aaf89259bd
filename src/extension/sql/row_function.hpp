//! Table functions with few rows, all of them produced when the function starts.
#pragma once

#include "duckdb/function/table_function.hpp"
#include "duckdb/main/extension/extension_loader.hpp"

#include <string>
#include <vector>

namespace rawduck {

using Rows = std::vector<duckdb::vector<duckdb::Value>>;

//! What a call was given. Keyword arguments that were left out have their defaults.
class Arguments {
  public:
    Arguments(duckdb::vector<duckdb::Value> positional, duckdb::named_argument_map_t named)
        : positional_(std::move(positional)), named_(std::move(named)) {}

    //! Throws when it is NULL or empty; `what` names it in the message.
    std::string Text(size_t position, const char *what) const;
    //! NULL when the caller passed NULL.
    const duckdb::Value &Named(const char *name) const;
    //! `otherwise` for NULL.
    std::string NamedText(const char *name, const std::string &otherwise) const;
    bool NamedFlag(const char *name) const;

  private:
    duckdb::vector<duckdb::Value> positional_;
    duckdb::named_argument_map_t named_;
};

struct Column {
    const char *name;
    duckdb::LogicalType type;
    const char *description = "";
};

struct RowFunction {
    const char *name;
    const char *description; //!< shown by duckdb_functions()
    const char *example;
    duckdb::FunctionSignature signature;
    std::vector<Column> columns;
    //! Produces every row. Errors of the lower layers are translated by the caller.
    Rows (*produce)(duckdb::ClientContext &context, const Arguments &arguments);
};

void RegisterRowFunction(duckdb::ExtensionLoader &loader, RowFunction function);

//! Registers any table function with a description and an example. What DuckDB has no place for are tags of
//! duckdb_functions(): "column.<name>" describes a column, "default.<name>" is the default of a parameter.
void RegisterDescribed(duckdb::ExtensionLoader &loader, duckdb::TableFunction function,
                       const char *description, const char *example, const std::vector<Column> &columns);

//! NULL for an empty text: nothing to warn of, no label.
duckdb::Value TextOrNull(const std::string &text);

} // namespace rawduck
