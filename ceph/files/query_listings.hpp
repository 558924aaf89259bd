//! A pool is listed once for a query, however many patterns it has.
#pragma once

#include "ceph/rados/pool/rados_pool.hpp"

#include "duckdb/common/file_opener.hpp"

namespace rawduck_ceph {

//! The names of the pool's objects that begin with `prefix`, in order, as they were when the query that runs
//! asked first; as they are now when none runs, or when the pool has too many to remember them. Thread-safe.
std::vector<std::string> NamesForQuery(const std::shared_ptr<RadosPool> &pool, const std::string &prefix,
                                       duckdb::optional_ptr<duckdb::FileOpener> opener);

} // namespace rawduck_ceph
