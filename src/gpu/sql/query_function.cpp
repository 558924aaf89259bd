//! gpu_open_query(ticket, query, ...): hands a query that Python has announced the connection that calls it. The query
//! itself begins when this statement is over.
#include "gpu/query/query.hpp"
#include "gpu/scan/open_scans.hpp"
#include "gpu/sql/functions.hpp"

#include "extension/sql/row_function.hpp"

#include "duckdb/main/client_context.hpp"

#include <cstdlib>

namespace rawduck::gpu {
namespace {

using duckdb::Identifier;
using duckdb::LogicalType;
using duckdb::Value;

QueryParameterValues ParametersOf(const Value &values) {
    QueryParameterValues parameters;
    if (values.IsNull()) {
        return parameters;
    }
    const auto &fields = duckdb::StructType::GetChildTypes(values.type());
    const auto &children = duckdb::StructValue::GetChildren(values);
    const bool is_unnamed = duckdb::StructType::IsUnnamed(values.type());
    for (size_t i = 0; i < children.size(); i++) {
        const Identifier name = is_unnamed ? Identifier(std::to_string(i + 1)) : Identifier(fields[i].first);
        parameters[name] = duckdb::BoundParameterData(children[i]);
    }
    return parameters;
}

Rows OpenQueryRows(duckdb::ClientContext &context, const Arguments &arguments) {
    const uint64_t ticket = std::strtoull(arguments.Text(0, "ticket").c_str(), nullptr, 10);
    const ScanOptions options = OptionsOf(ticket);
    SetOpened(ticket, std::make_shared<Query>(context, arguments.Text(1, "query"),
                                              ParametersOf(arguments.Named("parameters")), options));
    return {{Value::BOOLEAN(true)}};
}

} // namespace

void RegisterQueryFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature;
    signature.AddParameter("ticket", LogicalType::VARCHAR);
    signature.AddParameter("query", LogicalType::VARCHAR);
    signature.AddKeywordOnly("parameters", LogicalType::ANY, Value());
    RegisterRowFunction(
        loader,
        {"gpu_open_query",
         "Opens a query that gpu.query in Python has announced, on this connection. Of no use by itself",
         "SELECT * FROM gpu_open_query('1', 'SELECT 42')",
         signature,
         {{"is_open", LogicalType::BOOLEAN, "true"}},
         OpenQueryRows});
}

} // namespace rawduck::gpu
