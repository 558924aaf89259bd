#include "ceph/pushdown/proof/built_in_functions.hpp"

#include "duckdb/catalog/catalog.hpp"
#include "duckdb/catalog/catalog_entry/scalar_function_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/schema_catalog_entry.hpp"
#include "duckdb/catalog/catalog_transaction.hpp"
#include "duckdb/main/database.hpp"

#include <algorithm>
#include <mutex>

namespace rawduck_ceph {

namespace {

using FunctionOverloads = duckdb::vector<duckdb::shared_ptr<const duckdb::ScalarFunction>>;

struct NotedFunctions {
    std::mutex mutex; //!< guards what follows
    duckdb::identifier_map_t<FunctionOverloads> overloads;
};

NotedFunctions &NotedFunctionsOfProcess() {
    static auto &functions = *new NotedFunctions;
    return functions;
}

//! Whether both run the same code, which DuckDB's == does not compare.
bool HaveSameCode(const duckdb::ScalarFunction &a, const duckdb::ScalarFunction &b) {
    using Code = void (*)(duckdb::DataChunk &, duckdb::ExpressionState &, duckdb::Vector &);
    const duckdb::scalar_function_t &code_of_a = a.GetCallbacks().function;
    const duckdb::scalar_function_t &code_of_b = b.GetCallbacks().function;
    const Code *pointer_a = code_of_a.target<Code>();
    const Code *pointer_b = code_of_b.target<Code>();
    return pointer_a && pointer_b ? *pointer_a == *pointer_b
                                  : code_of_a.target_type() == code_of_b.target_type();
}

} // namespace

void NoteBuiltInFunctions(duckdb::DatabaseInstance &database) {
    const auto start = duckdb::CatalogTransaction::GetSystemTransaction(database);
    auto &schema =
        duckdb::Catalog::GetSystemCatalog(database).GetSchema(start, duckdb::Identifier::DefaultSchema());
    NotedFunctions &noted = NotedFunctionsOfProcess();
    std::lock_guard<std::mutex> lock(noted.mutex);
    schema.Scan(duckdb::CatalogType::SCALAR_FUNCTION_ENTRY, [&](duckdb::CatalogEntry &entry) {
        // Adding an overload later replaces the whole entry, in a later transaction.
        const bool is_of_start = entry.timestamp <= start.GetTransactionId();
        if (is_of_start && entry.type == duckdb::CatalogType::SCALAR_FUNCTION_ENTRY) {
            noted.overloads.emplace(entry.name,
                                    entry.Cast<duckdb::ScalarFunctionCatalogEntry>().functions.functions);
        }
    });
}

bool IsBuiltIn(const duckdb::BoundScalarFunction &function) {
    // Binding may have given it another name and other code: date_part('year', x) becomes year(x).
    const auto &definition = function.GetDefinition();
    if (!definition) {
        return false;
    }
    NotedFunctions &noted = NotedFunctionsOfProcess();
    std::lock_guard<std::mutex> lock(noted.mutex);
    const auto found = noted.overloads.find(definition->GetName());
    // Compared by content: an entry that is replaced has copies of the functions that it had before.
    return found != noted.overloads.end() &&
           std::any_of(found->second.begin(), found->second.end(), [&](const auto &overload) {
               return *overload == *definition && HaveSameCode(*overload, *definition);
           });
}

} // namespace rawduck_ceph
