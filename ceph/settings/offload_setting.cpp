#include "ceph/settings/offload_setting.hpp"

#include "duckdb/common/exception.hpp"
#include "duckdb/main/config.hpp"

namespace rawduck_ceph {

namespace {

using duckdb::LogicalType;

void CheckMode(duckdb::ClientContext &, duckdb::SetScope, duckdb::Value &value) {
    const std::string mode = value.ToString();
    if (mode != "auto" && mode != "never" && mode != "always" && mode != "filters") {
        throw duckdb::InvalidInputException("%s: '%s' is not 'auto', 'never', 'always' or 'filters'",
                                            SETTING_RADOS_OFFLOAD, mode);
    }
}

void CheckInFlight(duckdb::ClientContext &, duckdb::SetScope, duckdb::Value &value) {
    if (value.GetValue<uint32_t>() < 1 || value.GetValue<uint32_t>() > 1024) {
        throw duckdb::InvalidInputException("%s: %s is not between 1 and 1024",
                                            SETTING_RADOS_OFFLOAD_IN_FLIGHT, value.ToString());
    }
}

} // namespace

void AddOffloadSettings(duckdb::DBConfig &config) {
    config.AddExtensionOption(
        SETTING_RADOS_OFFLOAD,
        "Push queries over rados:// Parquet objects into the OSDs: auto, never, always or filters",
        LogicalType::VARCHAR, duckdb::Value(RADOS_OFFLOAD_DEFAULT), CheckMode);
    config.AddExtensionOption(
        SETTING_RADOS_OFFLOAD_LZ4,
        "Compress the answers of OSDs with LZ4, also where the link is not known to be slow",
        LogicalType::BOOLEAN, duckdb::Value::BOOLEAN(false));
    config.AddExtensionOption(SETTING_RADOS_OFFLOAD_IN_FLIGHT,
                              "Objects of a pool that OSDs work on at a time, at most", LogicalType::UINTEGER,
                              duckdb::Value::UINTEGER(RADOS_OFFLOAD_IN_FLIGHT_DEFAULT), CheckInFlight);
}

} // namespace rawduck_ceph
