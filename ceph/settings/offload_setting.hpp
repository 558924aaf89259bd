//! The settings of pushing queries to the OSDs.
#pragma once

namespace duckdb {
struct DBConfig;
}

namespace rawduck_ceph {

//! 'auto', 'never', 'always', or 'filters': every scan, but only filters and the choice of columns, and LZ4,
//! which is what Skyhook pushes. (It sends Arrow IPC; these are DuckDB's chunks.)
constexpr const char *SETTING_RADOS_OFFLOAD = "rados_offload";
constexpr const char *RADOS_OFFLOAD_DEFAULT = "auto";
//! LZ4 in all replies; without it 'auto' decides, once it knows the link.
constexpr const char *SETTING_RADOS_OFFLOAD_LZ4 = "rados_offload_lz4";
//! Calls of the object class at a time, of all scans of a pool; fewer where that keeps OSDs busy.
constexpr const char *SETTING_RADOS_OFFLOAD_IN_FLIGHT = "rados_offload_in_flight";
constexpr unsigned RADOS_OFFLOAD_IN_FLIGHT_DEFAULT = 16;

void AddOffloadSettings(duckdb::DBConfig &config);

} // namespace rawduck_ceph
