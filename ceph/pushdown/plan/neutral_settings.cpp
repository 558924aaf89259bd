#include "ceph/pushdown/plan/neutral_settings.hpp"

#include "duckdb/common/string_util.hpp"

namespace rawduck_ceph {

const std::vector<MeaningfulSetting> &MeaningfulSettings() {
    static const auto &settings = *new const std::vector<MeaningfulSetting>{
        {"binary_as_string", "false", "the type of Parquet's byte arrays"},
        {"Calendar", "gregorian", "casts from timestamps with time zone"},
        {"default_collation", "", "comparisons of texts"},
        {"dialect_compatibility_mode", "NONE", "how expressions are bound"},
        {"disable_timestamptz_casts", "false", "which casts there are"},
        {"disabled_optimizers", "", "expressions that the optimizer has left in another form"},
        {"enable_geoparquet_conversion", "true", "the type of a geometry"},
        {"enable_optimizer", "true", "expressions that the optimizer has left in another form"},
        {"error_on_division_by_zero", "true", "division by zero"},
        {"ieee_floating_point_ops", "true", "division by zero and overflow of floating-point numbers"},
        {"integer_division", "false", "the division of integers"},
        {"legacy_disable_null_type", "false", "the type of NULL"},
        {"regex_match_operator_semantics", "partial", "regular expressions"},
    };
    return settings;
}

std::string SettingInTheWay(duckdb::ClientContext &context) {
    for (const MeaningfulSetting &setting : MeaningfulSettings()) {
        duckdb::Value value;
        if (!context.TryGetCurrentSetting(setting.name, value)) {
            continue; // of an extension that is not loaded
        }
        const std::string text = value.IsNull() ? "" : value.ToString();
        if (!duckdb::StringUtil::CIEquals(text, setting.neutral)) {
            return std::string("the setting ") + setting.name + " is '" + text + "', which changes " +
                   setting.changes;
        }
    }
    return {};
}

} // namespace rawduck_ceph
