//! Settings that stay readable while a thread ends.
//!
//! DuckDB 2.0.0 keeps each thread's copy of the global settings in a thread_local object, and goes on reading
//! it after the object was destroyed. A database that is closed by an exit handler, a static destructor or a
//! thread_local's destructor writes its checkpoint then, and reads freed memory.
#pragma once

#include "duckdb/main/database.hpp"

namespace rawduck {

//! Empties the calling thread's copy before it is destroyed. DuckDB then copies the settings anew, into an
//! object that nothing destroys again. To be called by every thread that opens files, at any time. In the
//! static form the copy is that of the DuckDB which the extension brings, not the host's.
void KeepSettingsReadable(const duckdb::DatabaseInstance &database);

} // namespace rawduck
