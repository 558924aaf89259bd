//! Whether somebody has interrupted the query on whose behalf a thread waits for Ceph.
#pragma once

#include "ceph/rados/connection/interruptible.hpp"

#include "duckdb/common/file_opener.hpp"
#include "duckdb/main/client_context.hpp"

namespace rawduck_ceph {

//! For waits of the connection's queries: ClientContext::Interrupt was called or, where the main thread of Python
//! waits, a signal such as that of Ctrl-C has raised an exception there. The check may be called by any thread, and
//! after the connection was closed.
InterruptScope::Check InterruptCheckOf(duckdb::ClientContext &context);

//! Of the query that opens a file. Never interrupted where none does.
InterruptScope::Check InterruptCheckOf(duckdb::optional_ptr<duckdb::FileOpener> opener);

//! `context` runs queries on behalf of the query of `outer`: waits of the first end with an interrupt of the other.
void RunsFor(duckdb::ClientContext &context, duckdb::ClientContext &outer);

} // namespace rawduck_ceph
