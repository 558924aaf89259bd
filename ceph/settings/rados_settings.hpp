//! The rados_* settings. They are listed once, in the table in rados_settings.cpp, from which they are
//! registered and checked.
#pragma once

#include "duckdb/common/file_opener.hpp"
#include "duckdb/main/client_context.hpp"

namespace duckdb {
struct DBConfig;
}

namespace rawduck_ceph {

//! Names of settings, for messages and for SET statements.
constexpr const char *RADOS_TIMEOUT = "rados_timeout";
constexpr const char *RADOS_OFFLOAD = "rados_offload";
constexpr const char *RADOS_OFFLOAD_LZ4 = "rados_offload_lz4";
constexpr const char *RADOS_OFFLOAD_IN_FLIGHT = "rados_offload_in_flight";
constexpr const char *RADOS_OFFLOAD_CACHE = "rados_offload_cache";

//! Values of rados_offload.
constexpr const char *OFFLOAD_AUTO = "auto";       //!< push when that is expected to be faster
constexpr const char *OFFLOAD_NEVER = "never";     //!< read
constexpr const char *OFFLOAD_ALWAYS = "always";   //!< push whatever can be pushed
constexpr const char *OFFLOAD_SHARED = "shared";   //!< as always, and read objects while OSDs work on others
constexpr const char *OFFLOAD_FILTERS = "filters"; //!< push filters and projections only, as Skyhook does

void RegisterRadosSettings(duckdb::DBConfig &config);

//! The default where the opener knows of no setting.
uint32_t RadosTimeoutSeconds(duckdb::optional_ptr<duckdb::FileOpener> opener);
//! One of the OFFLOAD_ values.
std::string RadosOffload(duckdb::ClientContext &context);
bool RadosOffloadLz4(duckdb::ClientContext &context);
bool RadosOffloadCache(duckdb::ClientContext &context);
//! 0: as many as suit the cluster.
uint32_t RadosOffloadInFlight(duckdb::ClientContext &context);

} // namespace rawduck_ceph
