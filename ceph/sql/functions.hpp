//! What the extension adds to SQL.
#pragma once

#include "duckdb/main/extension/extension_loader.hpp"

namespace rawduck_ceph {

//! CREATE SECRET (TYPE rados, ...).
void RegisterRadosSecret(duckdb::ExtensionLoader &loader);
//! COPY ... TO 'rados://<pool>/<prefix>', and EXPORT DATABASE.
void RegisterRadosCopy(duckdb::ExtensionLoader &loader);
//! EXPORT DATABASE 'rados://<pool>/<prefix>'. Part of RegisterRadosCopy.
void RegisterRadosExport(duckdb::ExtensionLoader &loader);
//! rados_stats() and rados_reset_stats().
void RegisterRadosStats(duckdb::ExtensionLoader &loader);
//! rados_scans().
void RegisterRadosScans(duckdb::ExtensionLoader &loader);

} // namespace rawduck_ceph
