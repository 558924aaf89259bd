//! From a path to the pool that it names, with the credentials of DuckDB's secrets.
#pragma once

#include "ceph/rados/connection/rados_path.hpp"
#include "ceph/rados/rados_cluster.hpp"

#include "duckdb/common/file_opener.hpp"

namespace rawduck_ceph {

//! The type of the secrets that hold credentials.
constexpr const char *RADOS_SECRET = "rados";

//! The pool of a rados:// path, for whoever runs the query behind `opener`: the credentials of the secret
//! whose scope fits the path best, or Ceph's defaults. Clusters stay connected as long as the database is
//! open. Throws Error.
std::shared_ptr<RadosPool> PoolOf(const std::string &path, duckdb::optional_ptr<duckdb::FileOpener> opener);

} // namespace rawduck_ceph
