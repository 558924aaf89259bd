//! From a path to its pool, with the credentials of DuckDB's secrets.
#pragma once

#include "ceph/rados/connection/rados_path.hpp"
#include "ceph/rados/rados_cluster.hpp"

#include "duckdb/common/file_opener.hpp"

namespace rawduck_ceph {

//! The type of the secrets.
constexpr const char *RADOS_SECRET = "rados";
//! In a secret that was created where DuckDB's settings restrict access (RadosCredentials::restricted). No parameter.
constexpr const char *RADOS_SECRET_RESTRICTED = "restricted";

//! The pool of a rados:// path, with the credentials of the opener's secret whose scope matches the path
//! best, or Ceph's defaults. The cluster stays connected until the opener's database is closed. Throws Error.
std::shared_ptr<RadosPool> PoolOf(const std::string &path, duckdb::optional_ptr<duckdb::FileOpener> opener);

} // namespace rawduck_ceph
