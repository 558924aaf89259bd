//! A program whose first database has an allocator of its own, and whose second one has DuckDB's: what nvme_memory() says
//! of both, and how many allocations went to the program's.
#include "duckdb.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace {

std::atomic<long> allocations{0};

duckdb::data_ptr_t Allocate(duckdb::PrivateAllocatorData *, duckdb::idx_t size) {
    allocations++;
    return static_cast<duckdb::data_ptr_t>(std::malloc(size));
}

void Free(duckdb::PrivateAllocatorData *, duckdb::data_ptr_t memory, duckdb::idx_t) {
    std::free(memory);
}

duckdb::data_ptr_t Reallocate(duckdb::PrivateAllocatorData *, duckdb::data_ptr_t memory, duckdb::idx_t,
                              duckdb::idx_t size) {
    return static_cast<duckdb::data_ptr_t>(std::realloc(memory, size));
}

void Print(duckdb::DBConfig &config) {
    duckdb::DuckDB database(nullptr, &config);
    duckdb::Connection connection(database);
    const long before = allocations;
    connection.Query("CREATE TABLE t AS SELECT hash(range) AS b FROM range(1_000_000)");
    const auto rows = connection.Query("SELECT in_use, coalesce(why_not, '') FROM nvme_memory()")->Fetch();
    std::printf("%s|%s|%s\n", rows->GetValue(0, 0).ToString().c_str(),
                rows->GetValue(1, 0).ToString().c_str(), allocations > before ? "own" : "DuckDB's");
}

} // namespace

extern "C" void PrintBoth() {
    duckdb::DBConfig own;
    own.allocator = duckdb::make_uniq<duckdb::Allocator>(Allocate, Free, Reallocate, nullptr);
    Print(own);
    duckdb::DBConfig usual;
    Print(usual);
    std::fflush(stdout);
}
