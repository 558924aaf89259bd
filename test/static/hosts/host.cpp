//! A C++ program with DuckDB in a library that exports its C interface alone: opens a database in memory, runs the
//! statements of a file, one a line, and prints for each its rows, "ok" or the error, one a line.
//!
//! usage: host <file>
#include "duckdb.h"

#include <cstdio>
#include <fstream>
#include <string>

namespace {

std::string OneLine(std::string text) {
    for (char &letter : text) {
        letter = letter == '\n' ? ' ' : letter;
    }
    return text;
}

std::string Rows(duckdb_result &result) {
    std::string text;
    for (idx_t row = 0; row < duckdb_row_count(&result); row++) {
        for (idx_t column = 0; column < duckdb_column_count(&result); column++) {
            char *value = duckdb_value_varchar(&result, column, row);
            text += (text.empty() ? "" : " ") + std::string(value ? value : "NULL");
            duckdb_free(value);
        }
    }
    return text.empty() ? "ok" : text;
}

std::string Run(duckdb_connection connection, const std::string &statement) {
    duckdb_result result;
    const bool good = duckdb_query(connection, statement.c_str(), &result) == DuckDBSuccess;
    const std::string text = good ? Rows(result) : "error: " + std::string(duckdb_result_error(&result));
    duckdb_destroy_result(&result);
    return OneLine(text);
}

} // namespace

int main(int argc, char **argv) {
    std::ifstream statements(argc == 2 ? argv[1] : "");
    duckdb_config config;
    duckdb_database database;
    duckdb_connection connection;
    if (!statements || duckdb_create_config(&config) != DuckDBSuccess ||
        duckdb_set_config(config, "allow_unsigned_extensions", "true") != DuckDBSuccess ||
        duckdb_open_ext(nullptr, &database, config, nullptr) != DuckDBSuccess ||
        duckdb_connect(database, &connection) != DuckDBSuccess) {
        std::fprintf(stderr, "usage: host <file of statements>, or DuckDB did not open a database\n");
        return 2;
    }
    for (std::string statement; std::getline(statements, statement);) {
        std::printf("%s\n", Run(connection, statement).c_str());
    }
    duckdb_disconnect(&connection);
    duckdb_close(&database);
    duckdb_destroy_config(&config);
    return 0;
}
