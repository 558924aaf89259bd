//! gpu_open_scan(ticket, table, ...): opens a scan that Python has announced, in the transaction of the connection that
//! calls it. A connection without one of its own is told the table's full name instead, and asks again on another
//! connection, in a transaction that lives as long as the scan.
#include "gpu/scan/open_scans.hpp"
#include "gpu/scan/scan.hpp"
#include "gpu/sql/functions.hpp"

#include "extension/sql/row_function.hpp"

#include "duckdb/catalog/catalog_entry/table_catalog_entry.hpp"
#include "duckdb/common/type_visitor.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/storage/data_table.hpp"

#include <cstdlib>

namespace rawduck::gpu {
namespace {

using duckdb::ExpressionType;
using duckdb::LogicalType;
using duckdb::Value;

constexpr size_t PARTS_OF_CONDITION = 4; // column, operator, constant as text, its type

ExpressionType ComparisonOf(const std::string &text) {
    if (text == "=" || text == "==") {
        return ExpressionType::COMPARE_EQUAL;
    }
    if (text == "<") {
        return ExpressionType::COMPARE_LESSTHAN;
    }
    if (text == "<=") {
        return ExpressionType::COMPARE_LESSTHANOREQUALTO;
    }
    if (text == ">") {
        return ExpressionType::COMPARE_GREATERTHAN;
    }
    if (text == ">=") {
        return ExpressionType::COMPARE_GREATERTHANOREQUALTO;
    }
    throw duckdb::InvalidInputException("conditions compare by =, <, <=, > or >=, not by \"%s\"", text);
}

std::vector<std::string> Texts(const Value &list) {
    std::vector<std::string> texts;
    if (!list.IsNull()) {
        for (auto &value : duckdb::ListValue::GetChildren(list)) {
            texts.push_back(value.ToString());
        }
    }
    return texts;
}

std::vector<Condition> ConditionsOf(duckdb::ClientContext &context, const std::vector<std::string> &parts) {
    if (parts.size() % PARTS_OF_CONDITION != 0) {
        throw duckdb::InvalidInputException("a condition is a column, an operator, a constant and its type");
    }
    std::vector<Condition> conditions;
    for (size_t i = 0; i < parts.size(); i += PARTS_OF_CONDITION) {
        const LogicalType type =
            duckdb::TypeManager::Get(*context.db).ParseLogicalType(parts[i + 3], context);
        conditions.push_back({parts[i], ComparisonOf(parts[i + 1]), Value(parts[i + 2]).DefaultCastAs(type)});
    }
    return conditions;
}

Rows OpenRows(duckdb::ClientContext &context, const Arguments &arguments) {
    const uint64_t ticket = std::strtoull(arguments.Text(0, "ticket").c_str(), nullptr, 10);
    const ScanOptions options = OptionsOf(ticket);
    TablePlan plan = DescribeTable(context, arguments.Text(1, "table"), Texts(arguments.Named("columns")),
                                   ConditionsOf(context, Texts(arguments.Named("conditions"))));
    if (!plan.generated.empty()) {
        ThrowGenerated(plan.generated.front().name);
    }
    const bool is_opened = !context.transaction.IsAutoCommit();
    if (!is_opened && plan.table->IsTemporary()) {
        throw duckdb::InvalidInputException(
            "%s is a temporary table, which no other connection sees; begin a "
            "transaction on this one before the scan",
            plan.name);
    }
    const std::string name = plan.name;
    if (is_opened) {
        SetOpened(ticket, std::make_shared<Scan>(context, std::move(plan), options));
    }
    return {{Value(name), Value::BOOLEAN(is_opened)}};
}

} // namespace

void RegisterOpenFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature;
    signature.AddParameter("ticket", LogicalType::VARCHAR);
    signature.AddParameter("table", LogicalType::VARCHAR);
    const LogicalType texts = LogicalType::LIST(LogicalType::VARCHAR);
    signature.AddKeywordOnly("columns", texts, Value(texts));
    signature.AddKeywordOnly("conditions", texts, Value(texts));
    RegisterRowFunction(
        loader,
        {"gpu_open_scan",
         "Opens a scan that gpu.scan in Python has announced, in this connection's transaction. Of no use by "
         "itself",
         "SELECT * FROM gpu_open_scan('1', 'lineitem')",
         signature,
         {{"table_name", LogicalType::VARCHAR, "With its catalog and schema"},
          {"is_open", LogicalType::BOOLEAN, "false: this connection has no transaction of its own"}},
         OpenRows});
}

} // namespace rawduck::gpu
