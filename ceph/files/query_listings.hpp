//! Listings of pools, cached for the duration of a query.
#pragma once

#include "ceph/rados/pool/rados_pool.hpp"

#include "duckdb/common/file_opener.hpp"

namespace rawduck_ceph {

//! The names of the pool's objects that begin with `prefix`, sorted. The pool is listed at the first call
//! of a query, however many patterns it has; at each call outside of a query, or when the pool is too
//! large to cache. Thread-safe.
std::vector<std::string> NamesForQuery(const std::shared_ptr<RadosPool> &pool, const std::string &prefix,
                                       duckdb::optional_ptr<duckdb::FileOpener> opener);

} // namespace rawduck_ceph
