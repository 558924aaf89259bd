#include "ceph/settings/rados_settings.hpp"

#include "duckdb/common/exception.hpp"
#include "duckdb/main/config.hpp"

#include <stdexcept>
#include <string_view>
#include <utility>

namespace rawduck_ceph {

namespace {

using duckdb::Identifier;
using duckdb::LogicalTypeId;
using duckdb::SetScope;
using duckdb::Value;

struct RadosSetting {
    const char *name;
    const char *description; //!< shown by duckdb_settings()
    LogicalTypeId type;
    const char *default_value;
    SetScope scope = SetScope::SESSION;
    uint32_t min = 0, max = 0;   //!< of numbers
    const char *unit = "";       //!< of numbers, in messages
    const char *choices[5] = {}; //!< of texts
};

constexpr RadosSetting SETTINGS[] = {
    {RADOS_TIMEOUT, "Seconds to wait for a Ceph cluster, when connecting and for each operation",
     LogicalTypeId::UINTEGER, "30", SetScope::GLOBAL, 1, UINT32_MAX, "seconds"},
    {RADOS_OFFLOAD,
     "Whether queries over rados:// Parquet objects run in the OSDs: auto, never, always, shared or "
     "filters",
     LogicalTypeId::VARCHAR,
     OFFLOAD_AUTO,
     SetScope::SESSION,
     0,
     0,
     "",
     {OFFLOAD_AUTO, OFFLOAD_NEVER, OFFLOAD_ALWAYS, OFFLOAD_SHARED, OFFLOAD_FILTERS}},
    {RADOS_OFFLOAD_LZ4, "Compress the replies of OSDs with LZ4 even where the link is not known to be slow",
     LogicalTypeId::BOOLEAN, "false"},
    {RADOS_OFFLOAD_IN_FLIGHT,
     "Maximum number of objects of a pool that OSDs process at the same time for this process; 0: four for "
     "each OSD of the cluster",
     LogicalTypeId::UINTEGER, "0", SetScope::SESSION, 0, 1024, "objects"},
    {RADOS_OFFLOAD_CACHE,
     "Whether the hosts of the OSDs may answer with what they kept of earlier queries about the same version "
     "of an object, and keep small answers",
     LogicalTypeId::BOOLEAN, "true"},
};
constexpr size_t SETTING_COUNT = sizeof(SETTINGS) / sizeof(SETTINGS[0]);

//! Evaluated at compile time where the result is constexpr: a name that is not in the table does not compile.
constexpr const RadosSetting &SettingNamed(std::string_view name) {
    for (const RadosSetting &setting : SETTINGS) {
        if (name == setting.name) {
            return setting;
        }
    }
    throw std::out_of_range("a setting that is not in the table");
}

Value DefaultValue(const RadosSetting &setting) {
    return Value(setting.default_value).DefaultCastAs(duckdb::LogicalType(setting.type));
}

void CheckChoice(const RadosSetting &setting, const Value &value) {
    const std::string text = value.ToString();
    std::string choices;
    for (const char *choice : setting.choices) {
        if (text == choice) {
            return;
        }
        choices += std::string(choices.empty() ? "'" : ", '") + choice + "'";
    }
    throw duckdb::InvalidInputException("%s: '%s' is not one of %s", setting.name, text, choices);
}

void CheckBounds(const RadosSetting &setting, const Value &value) {
    const bool inside = !value.IsNull() && value.GetValue<uint32_t>() >= setting.min &&
                        value.GetValue<uint32_t>() <= setting.max;
    if (!inside) {
        throw duckdb::InvalidInputException("%s: %s is not a number between %u and %u %s", setting.name,
                                            value.ToString(), setting.min, setting.max, setting.unit);
    }
}

//! DuckDB's check function is not told which setting it is called for: there is one function for each.
template <size_t POSITION> void Check(duckdb::ClientContext &, SetScope, Value &value) {
    constexpr const RadosSetting &setting = SETTINGS[POSITION];
    if constexpr (setting.type == LogicalTypeId::VARCHAR) {
        CheckChoice(setting, value);
    } else if constexpr (setting.type == LogicalTypeId::UINTEGER) {
        CheckBounds(setting, value);
    }
}

template <size_t... POSITIONS> void RegisterAll(duckdb::DBConfig &config, std::index_sequence<POSITIONS...>) {
    (config.AddExtensionOption(Identifier(SETTINGS[POSITIONS].name), SETTINGS[POSITIONS].description,
                               duckdb::LogicalType(SETTINGS[POSITIONS].type),
                               DefaultValue(SETTINGS[POSITIONS]), Check<POSITIONS>,
                               SETTINGS[POSITIONS].scope),
     ...);
}

//! NULL only for a BOOLEAN that was set to NULL.
Value CurrentValue(duckdb::ClientContext &context, const RadosSetting &setting) {
    Value value;
    return context.TryGetCurrentSetting(Identifier(setting.name), value) ? value : DefaultValue(setting);
}

bool IsTrue(const Value &value) {
    return !value.IsNull() && value.GetValue<bool>();
}

} // namespace

void RegisterRadosSettings(duckdb::DBConfig &config) {
    RegisterAll(config, std::make_index_sequence<SETTING_COUNT>());
}

uint32_t RadosTimeoutSeconds(duckdb::optional_ptr<duckdb::FileOpener> opener) {
    constexpr const RadosSetting &setting = SettingNamed(RADOS_TIMEOUT);
    Value value;
    if (!duckdb::FileOpener::TryGetCurrentSetting(opener, Identifier(setting.name), value) ||
        value.IsNull()) {
        value = DefaultValue(setting);
    }
    return value.GetValue<uint32_t>();
}

std::string RadosOffload(duckdb::ClientContext &context) {
    constexpr const RadosSetting &setting = SettingNamed(RADOS_OFFLOAD);
    return CurrentValue(context, setting).ToString();
}

bool RadosOffloadLz4(duckdb::ClientContext &context) {
    constexpr const RadosSetting &setting = SettingNamed(RADOS_OFFLOAD_LZ4);
    return IsTrue(CurrentValue(context, setting));
}

bool RadosOffloadCache(duckdb::ClientContext &context) {
    constexpr const RadosSetting &setting = SettingNamed(RADOS_OFFLOAD_CACHE);
    return IsTrue(CurrentValue(context, setting));
}

uint32_t RadosOffloadInFlight(duckdb::ClientContext &context) {
    constexpr const RadosSetting &setting = SettingNamed(RADOS_OFFLOAD_IN_FLIGHT);
    return CurrentValue(context, setting).GetValue<uint32_t>();
}

} // namespace rawduck_ceph
