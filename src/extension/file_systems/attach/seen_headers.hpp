//! DuckDB reads the headers of a database that it attaches through a handle without a lock, opens the file again with a lock, and
//! goes on from what it has read. What another process has committed in between would be lost. So they are compared.
#pragma once

#include "io/storage_file.hpp"

#include "duckdb/common/file_opener.hpp"

#include <functional>
#include <string>

namespace rawduck {

//! Of a file: what DuckDB's three headers lie in. Empty when the file is.
std::string HeadersOf(StorageFile &file);

using FindHeaders = std::function<std::string()>; //!< empty when there is no such file

//! For the rest of the query of `opener`; outside of queries nothing is remembered. `headers` is called only to be remembered.
void RememberHeaders(duckdb::optional_ptr<duckdb::FileOpener> opener, const std::string &path,
                     const FindHeaders &headers);
//! Under the lock: throws Error LOCKED where they are not what was remembered, which is forgotten. `creates`: DuckDB has found
//! no file, whether that was remembered or not, and will write a new database.
void RequireSeenHeaders(duckdb::optional_ptr<duckdb::FileOpener> opener, const std::string &path,
                        bool creates, const FindHeaders &headers);

} // namespace rawduck
