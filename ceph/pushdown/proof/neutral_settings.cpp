#include "ceph/pushdown/proof/neutral_settings.hpp"

#include "duckdb/common/string_util.hpp"
#include "duckdb/main/config.hpp"

#include <sstream>
#include <unordered_set>

namespace rawduck_ceph {

namespace {

//! Settings that change what can be pushed.
struct MeaningfulSetting {
    const char *name;
    const char *neutral; //!< the value's text with which the class works, or several, separated by '|'
    const char *changes; //!< what another value changes
};

constexpr MeaningfulSetting MEANINGFUL_SETTINGS[] = {
    {"binary_as_string", "false", "the type of Parquet's byte arrays"},
    {"Calendar", "gregorian", "casts from timestamps with time zone"},
    // The last three are DuckDB's names for none (GetVarcharCollationFunctions).
    {"default_collation", "|binary|c|posix", "comparisons of texts"},
    {"dialect_compatibility_mode", "NONE", "how expressions are bound"},
    {"disable_timestamptz_casts", "false", "which casts there are"},
    {"disabled_optimizers", "", "expressions that the optimizer has left in another form"},
    {"enable_geoparquet_conversion", "true", "the type of a geometry"},
    {"enable_optimizer", "true", "expressions that the optimizer has left in another form"},
    {"error_on_division_by_zero", "true", "division by zero"},
    {"ieee_floating_point_ops", "true", "division by zero and overflow of floating-point numbers"},
    {"integer_division", "false", "the division of integers"},
    {"legacy_disable_null_type", "false", "the type of NULL"},
    {"old_implicit_casting", "false", "which casts are implicit"},
    {"regex_match_operator_semantics", "partial", "regular expressions"},
};

//! Settings with any value of which the same is pushed and means the same.
struct NeutralSettings {
    const char *why;
    const char *names; //!< separated by spaces; a name that ends in '*' stands for all that start with it
};

constexpr NeutralSettings NEUTRAL_SETTINGS[] = {
    {"memory, threads, caches and read-ahead: how fast a query runs",
     "allocator_background_threads allocator_bulk_deallocation_flush_threshold allocator_flush_threshold "
     "async_threads block_allocator_memory cache_local_files disable_parquet_prefetching "
     "enable_external_file_cache enable_http_metadata_cache enable_object_cache "
     "external_file_cache_local_max_block_size external_file_cache_remote_max_block_size "
     "external_file_cache_remote_min_block_size external_file_cache_request_sizing external_file_cache_spill "
     "external_threads http_client_pool_capacity max_memory max_temp_directory_size "
     "operator_memory_limit parquet_metadata_cache parquet_prefetch_column_gap pin_threads "
     "prefetch_all_parquet_files read_ahead_depth scheduler_process_partial standard_vector_size "
     "storage_block_prefetch streaming_buffer_size max_streaming_buffer_size temp_directory "
     "temp_file_encryption threads validate_external_file_cache variant_legacy_encoding"},
    {"which plan the optimizer chooses; what is pushed is proven for the plan that it has chosen",
     "approximate_join_order_threshold asof_loop_join_threshold delim_join_as_cte "
     "dynamic_or_filter_threshold "
     "index_scan_max_count index_scan_percentage late_materialization_max_rows merge_join_threshold "
     "nested_loop_join_threshold ordered_aggregate_threshold perfect_ht_threshold pivot_filter_threshold "
     "prefer_range_joins enable_fsst_vectors max_expression_depth"},
    {"how a statement is parsed and bound; what is pushed is taken from the bound plan, and the class parses "
     "and "
     "binds with its own settings",
     "active_grammar_extensions allow_parser_override_extension current_dialect default_null_order "
     "default_order "
     "file_search_path lambda_syntax order_by_non_integer_literal pivot_limit preserve_identifier_case "
     "python_enable_replacements python_scan_all_frames scalar_subquery_error_on_multiple_rows schema "
     "search_path "
     "show_behavior table_function_identifier_conversion enable_macro_dependencies enable_view_dependencies "
     "ignore_unknown_crs pandas_analyze_sample"},
    {"the order of rows that have none, which the scan keeps in the same way", "preserve_insertion_order"},
    {"timestamps with time zone, which are neither pushed nor cast by the class", "TimeZone"},
    {"what is written: databases, their logs, and files of COPY",
     "auto_checkpoint_skip_wal_threshold checkpoint_on_detach checkpoint_threshold default_block_size "
     "disabled_compression_methods enable_optimistic_write experimental_metadata_reuse "
     "force_column_metadata_reuse "
     "force_compression fsync_mode geometry_minimum_shredding_size immediate_transaction_mode "
     "initial_column_segment_size max_vacuum_tasks partitioned_write_flush_threshold "
     "partitioned_write_max_open_files storage_compatibility_version vacuum_rebuild_indexes "
     "variant_minimum_shredding_size wal_autocheckpoint_entries write_buffer_row_group_count "
     "write_buffer_row_group_memory_limit zstd_min_string_length force_bitpacking_mode "
     "force_variant_shredding "
     "force_update_to_del_and_insert"},
    {"what is allowed, and where extensions, secrets and files of other systems are; checked when a scan is "
     "bound",
     "access_mode allow_community_extensions allow_extension_repositories allow_extensions_metadata_mismatch "
     "allow_persistent_secrets allow_unredacted_secrets allow_unsigned_extensions allowed_configs "
     "allowed_directories allowed_paths autoinstall_extension_repository autoinstall_known_extensions "
     "autoload_known_extensions custom_extension_repository custom_user_agent default_secret_storage "
     "disabled_filesystems duckdb_api enable_external_access extension_directories extension_directory "
     "extension_repository_directory force_mbedtls_unsafe home_directory http_proxy http_proxy_password "
     "http_proxy_username lock_configuration password secret_directory username azure_* ca_cert_file "
     "enable_curl_server_cert_verification enable_server_cert_verification force_download hf_* http_* s3_*"},
    {"transactions, errors, logs, profiles and results on their way to the application",
     "arrow_large_buffer_size arrow_lossless_conversion arrow_output_list_view arrow_output_version "
     "catalog_error_max_schemas current_transaction_invalidation_policy "
     "default_transaction_invalidation_policy "
     "disable_database_invalidation disabled_log_types enable_logging enable_profiling enable_progress_bar "
     "enable_progress_bar_print enabled_log_types errors_as_json explain_output json_geometry_format "
     "legacy_metrics_format log_query_path logging_level logging_mode logging_storage max_execution_time "
     "produce_arrow_string_view profiling_coverage profiling_mode profiling_output "
     "profiling_renderer_settings "
     "progress_bar_time redact_http_logs tracked_metrics warnings_as_errors"},
    {"for DuckDB's own tests: checks, delays and other ways to the same result",
     "debug_* enable_caching_operators"},
    {"this project's: whether and how a query is pushed, and volumes", "rados_* nvme_*"},
};

//! Names in lower case; those of prefixes without the '*'.
struct NeutralNames {
    std::unordered_set<std::string> names;
    std::vector<std::string> prefixes;
};

const NeutralNames &Neutral() {
    static const auto &neutral = *new const NeutralNames([] {
        NeutralNames result;
        for (const NeutralSettings &settings : NEUTRAL_SETTINGS) {
            for (std::string name : duckdb::StringUtil::Split(settings.names, ' ')) {
                name = duckdb::StringUtil::Lower(name);
                if (name.back() == '*') {
                    result.prefixes.push_back(name.substr(0, name.size() - 1));
                } else {
                    result.names.insert(std::move(name));
                }
            }
        }
        return result;
    }());
    return neutral;
}

bool IsNeutral(const MeaningfulSetting &setting, const duckdb::Value &value) {
    const std::string text = value.IsNull() ? "" : value.ToString();
    std::istringstream neutral(setting.neutral +
                               std::string("|")); // or the last empty text would not be read
    for (std::string one; std::getline(neutral, one, '|');) {
        if (duckdb::StringUtil::CIEquals(text, one)) {
            return true;
        }
    }
    return false;
}

//! With its current value, "the setting x is 'y'".
std::string Describe(const std::string &name, const duckdb::Value &value) {
    return "the setting " + name + " is '" + (value.IsNull() ? "" : value.ToString()) + "'";
}

//! Whether the session or the database has set the setting to another value than its default.
bool IsChanged(duckdb::ClientContext &context, duckdb::optional_idx index, const duckdb::Value &default_value,
               duckdb::Value &value) {
    return index.IsValid() && context.TryGetCurrentUserSetting(index.GetIndex(), value) &&
           !duckdb::Value::NotDistinctFrom(value, default_value);
}

//! DuckDB's own settings that are in no table: none, unless DuckDB has been given a new one.
const std::vector<const duckdb::ConfigurationOption *> &UnclassifiedOptions() {
    static const auto &options = *new const std::vector<const duckdb::ConfigurationOption *>([] {
        std::vector<const duckdb::ConfigurationOption *> result;
        for (duckdb::idx_t i = 0; i < duckdb::DBConfig::GetOptionCount(); i++) {
            const auto option = duckdb::DBConfig::GetOptionByIndex(i);
            if (!IsClassifiedSetting(option->name)) {
                result.push_back(option.get());
            }
        }
        return result;
    }());
    return options;
}

//! A setting in no table that has been changed.
std::string UnknownSetting(duckdb::ClientContext &context) {
    const char *const unknown = ", of which it is not known what it changes";
    duckdb::Value value;
    for (const auto *option : UnclassifiedOptions()) {
        duckdb::Value default_value;
        duckdb::DBConfig::TryGetDefaultValue(option, default_value);
        if (IsChanged(context, option->setting_idx, default_value, value)) {
            return Describe(option->name, value) + unknown;
        }
    }
    for (const auto &[name, option] : duckdb::DBConfig::GetConfig(context).GetExtensionSettings()) {
        if (!IsClassifiedSetting(name.GetIdentifierName()) &&
            IsChanged(context, option.setting_index, option.default_value, value)) {
            return Describe(name.GetIdentifierName(), value) + unknown;
        }
    }
    return {};
}

} // namespace

bool IsClassifiedSetting(const std::string &name) {
    const std::string lower = duckdb::StringUtil::Lower(name);
    for (const MeaningfulSetting &setting : MEANINGFUL_SETTINGS) {
        if (duckdb::StringUtil::CIEquals(lower, setting.name)) {
            return true;
        }
    }
    if (Neutral().names.count(lower) != 0) {
        return true;
    }
    for (const std::string &prefix : Neutral().prefixes) {
        if (duckdb::StringUtil::StartsWith(lower, prefix)) {
            return true;
        }
    }
    return false;
}

std::string SettingInTheWay(duckdb::ClientContext &context) {
    for (const MeaningfulSetting &setting : MEANINGFUL_SETTINGS) {
        duckdb::Value value;
        if (!context.TryGetCurrentSetting(setting.name, value)) {
            continue; // of an extension that is not loaded
        }
        if (!IsNeutral(setting, value)) {
            return Describe(setting.name, value) + ", which changes " + setting.changes;
        }
    }
    return UnknownSetting(context);
}

} // namespace rawduck_ceph
