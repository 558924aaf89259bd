//! The entry point of rawduck_ceph: registers everything, does nothing else.
#include "ceph/files/rados_file_system.hpp"
#include "ceph/pushdown/offload_optimizer.hpp"
#include "ceph/settings/rados_settings.hpp"
#include "ceph/sql/functions.hpp"

#include "duckdb/common/virtual_file_system.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/main/extension/extension_loader.hpp"

extern "C" __attribute__((visibility("default"))) void
rawduck_ceph_duckdb_cpp_init(duckdb::ExtensionLoader &loader) {
    loader.SetDescription("DuckDB on objects of a Ceph cluster (rados://)");
    loader.GetDatabaseInstance().GetFileSystem().RegisterSubSystem(
        duckdb::make_uniq<rawduck_ceph::RadosFileSystem>());
    rawduck_ceph::RegisterRadosSettings(duckdb::DBConfig::GetConfig(loader.GetDatabaseInstance()));
    rawduck_ceph::RegisterRadosSecret(loader);
    rawduck_ceph::RegisterRadosCopy(loader);
    rawduck_ceph::RegisterRadosStats(loader);
    rawduck_ceph::RegisterRadosScans(loader);
    rawduck_ceph::RegisterOffloadOptimizer(loader);
}
