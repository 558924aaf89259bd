#include "extension/sql/row_function.hpp"

#include "extension/file_systems/errors.hpp"

#include "duckdb/catalog/catalog_entry/table_function_catalog_entry.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/parser/parsed_data/create_table_function_info.hpp"

#include <algorithm>

namespace rawduck {

using duckdb::ClientContext;
using duckdb::Identifier;
using duckdb::LogicalType;
using duckdb::Value;

namespace {

struct RowFunctionInfo final : duckdb::TableFunctionInfo {
    explicit RowFunctionInfo(RowFunction function) : function(std::move(function)) {}
    RowFunction function;
};

struct RowBindData final : duckdb::TableFunctionData {
    RowBindData(const RowFunction &function, Arguments arguments)
        : function(function), arguments(std::move(arguments)) {}
    const RowFunction &function; //!< lives in the catalog
    Arguments arguments;
};

struct RowState final : duckdb::GlobalTableFunctionState {
    Rows rows;
    size_t next = 0;
};

duckdb::unique_ptr<duckdb::FunctionData> Bind(ClientContext &, duckdb::TableFunctionBindInput &input,
                                              duckdb::vector<LogicalType> &types,
                                              duckdb::vector<Identifier> &names) {
    auto &function = input.info->Cast<RowFunctionInfo>().function;
    for (auto &column : function.columns) {
        names.emplace_back(column.name);
        types.push_back(column.type);
    }
    return duckdb::make_uniq<RowBindData>(function, Arguments(input.inputs, input.named_parameters));
}

duckdb::unique_ptr<duckdb::GlobalTableFunctionState> Start(ClientContext &context,
                                                           duckdb::TableFunctionInitInput &input) {
    auto &bound = input.bind_data->Cast<RowBindData>();
    auto state = duckdb::make_uniq<RowState>();
    state->rows = Translated([&] { return bound.function.produce(context, bound.arguments); });
    return std::move(state);
}

void Emit(ClientContext &, duckdb::TableFunctionInput &input, duckdb::DataChunk &output) {
    auto &state = input.global_state->Cast<RowState>();
    const size_t count = std::min<size_t>(state.rows.size() - state.next, STANDARD_VECTOR_SIZE);
    for (size_t i = 0; i < count; i++) {
        auto &row = state.rows[state.next + i];
        for (size_t column = 0; column < row.size(); column++) {
            output.data[column].Append(row[column]);
        }
    }
    state.next += count;
}

} // namespace

std::string Arguments::Text(size_t position, const char *what) const {
    auto &value = positional_[position];
    if (value.IsNull() || value.ToString().empty()) {
        throw duckdb::InvalidInputException("the %s is NULL or empty", what);
    }
    return value.ToString();
}

const Value &Arguments::Named(const char *name) const {
    return named_.at(Identifier(name));
}

std::string Arguments::NamedText(const char *name, const std::string &otherwise) const {
    auto &value = Named(name);
    return value.IsNull() ? otherwise : value.ToString();
}

bool Arguments::NamedFlag(const char *name) const {
    auto &value = Named(name);
    return !value.IsNull() && value.GetValue<bool>();
}

void RegisterDescribed(duckdb::ExtensionLoader &loader, duckdb::TableFunction function,
                       const char *description, const char *example, const std::vector<Column> &columns) {
    duckdb::FunctionDescription text;
    duckdb::InsertionOrderPreservingMap<std::string> tags;
    for (auto &parameter : function.GetSignature().GetParameters()) {
        const std::string name = parameter.GetName().GetIdentifierName();
        text.parameter_names.push_back(name);
        text.parameter_types.push_back(parameter.GetType());
        if (parameter.HasDefaultValue()) {
            const Value &value = *parameter.GetDefaultValue();
            tags["default." + name] = value.IsNull() ? "NULL" : value.ToSQLString();
        }
    }
    for (auto &column : columns) {
        if (*column.description != '\0') {
            tags[std::string("column.") + column.name] = column.description;
        }
    }
    text.description = description;
    text.examples.emplace_back(example);
    text.categories.emplace_back("rawduck");
    const Identifier name = function.name;
    duckdb::CreateTableFunctionInfo info(std::move(function));
    info.descriptions.push_back(std::move(text));
    loader.RegisterFunction(std::move(info));
    // DuckDB does not take them over from the info of a function.
    loader.GetTableFunction(name).tags = std::move(tags);
}

void RegisterRowFunction(duckdb::ExtensionLoader &loader, RowFunction function) {
    duckdb::TableFunction table_function(Identifier(function.name), function.signature, Emit, Bind, Start);
    const char *description = function.description, *example = function.example;
    const std::vector<Column> columns = function.columns;
    table_function.function_info = duckdb::make_shared_ptr<RowFunctionInfo>(std::move(function));
    RegisterDescribed(loader, std::move(table_function), description, example, columns);
}

Value TextOrNull(const std::string &text) {
    return text.empty() ? Value(LogicalType::VARCHAR) : Value(text);
}

} // namespace rawduck
