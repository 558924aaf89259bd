//! Settings of DuckDB that change what an expression or a Parquet file means. The object class has none of them
//! set, so a query is pushed only where they have their defaults.
#pragma once

#include "duckdb/main/client_context.hpp"

#include <string>
#include <vector>

namespace rawduck_ceph {

struct MeaningfulSetting {
    const char *name;
    const char *neutral; //!< the value's text with which the class works
    const char *changes; //!< what another value changes
};

//! All other settings of DuckDB 2.0.0 do not change the result of what can be pushed; a test lists them.
const std::vector<MeaningfulSetting> &MeaningfulSettings();

//! "the setting x is y" for the first one that is not neutral; empty when all of them are.
std::string SettingInTheWay(duckdb::ClientContext &context);

} // namespace rawduck_ceph
