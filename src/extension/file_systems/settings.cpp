#include "extension/file_systems/settings.hpp"

#include "common/text/size.hpp"
#include "extension/file_systems/settings_cache.hpp"

#include "common/error.hpp"

#include "duckdb/common/types/value.hpp"
#include "io/open_device.hpp"

namespace rawduck {
namespace {

bool Lookup(duckdb::optional_ptr<duckdb::FileOpener> opener, const char *name, duckdb::Value &value) {
    if (const auto database = duckdb::FileOpener::TryGetDatabase(opener)) {
        KeepSettingsReadable(*database);
    }
    return duckdb::FileOpener::TryGetCurrentSetting(opener, duckdb::Identifier(name), value) &&
           !value.IsNull();
}

} // namespace

std::string CheckEngine(const std::string &text) {
    RequireKnownEngine(text, SETTING_ENGINE);
    return text;
}

uint32_t CheckQueueDepth(int64_t depth) {
    if (depth < 1 || depth > static_cast<int64_t>(QUEUE_DEPTH_MAX)) {
        throw Error(ErrorCode::INVALID, std::string(SETTING_QUEUE_DEPTH) + ": " + std::to_string(depth) +
                                            " is not between 1 and " + std::to_string(QUEUE_DEPTH_MAX));
    }
    return static_cast<uint32_t>(depth);
}

uint32_t ParseMaxTransfer(const std::string &text) {
    const uint64_t bytes = ParseSize(text, SETTING_MAX_TRANSFER);
    if (bytes != 0 && (bytes < ALLOCATION_UNIT_BYTES || bytes > MAX_COMMAND_BYTES ||
                       !IsAligned(bytes, ALLOCATION_UNIT_BYTES))) {
        throw Error(ErrorCode::INVALID, std::string(SETTING_MAX_TRANSFER) + ": " + text +
                                            " is neither 0 (the default of the device) nor a multiple "
                                            "of 4 KiB up to " +
                                            SizeText(MAX_COMMAND_BYTES));
    }
    return static_cast<uint32_t>(bytes);
}

uint64_t ParseMemorySize(const std::string &text) {
    const uint64_t bytes = ParseSize(text, SETTING_MEMORY_SIZE);
    if (bytes < 16 * MIB) {
        throw Error(ErrorCode::INVALID, std::string(SETTING_MEMORY_SIZE) + ": " + text +
                                            " is less than the 16 MiB "
                                            "that a volume needs");
    }
    return bytes;
}

uint64_t ParseBufferSize(const std::string &text, const char *setting) {
    const uint64_t bytes = ParseSize(text, setting);
    if (bytes > BUFFER_SIZE_LIMIT) {
        throw Error(ErrorCode::INVALID,
                    std::string(setting) + ": " + text + " is more than " + SizeText(BUFFER_SIZE_LIMIT));
    }
    return bytes;
}

MountOptions MountOptionsOf(duckdb::optional_ptr<duckdb::FileOpener> opener) {
    MountOptions options;
    duckdb::Value value;
    if (Lookup(opener, SETTING_ENGINE, value)) {
        options.engine = value.ToString();
    }
    if (Lookup(opener, SETTING_QUEUE_MODE, value)) {
        options.io.queue_mode = ParseQueueMode(value.ToString());
    }
    if (Lookup(opener, SETTING_QUEUE_DEPTH, value)) {
        options.io.queue_depth = CheckQueueDepth(value.GetValue<int64_t>());
    }
    if (Lookup(opener, SETTING_MAX_TRANSFER, value)) {
        options.max_transfer_bytes = ParseMaxTransfer(value.ToString());
    }
    if (Lookup(opener, SETTING_MEMORY_SIZE, value)) {
        options.memory_target_bytes = ParseMemorySize(value.ToString());
    }
    if (Lookup(opener, SETTING_PLACEMENT, value)) {
        options.io.placement = ParsePlacement(value.ToString());
    }
    if (Lookup(opener, SETTING_POLLING, value)) {
        options.polling = value.GetValue<bool>();
    }
    if (Lookup(opener, SETTING_SPILL_BUFFER, value)) {
        options.spill_buffer_bytes = ParseBufferSize(value.ToString(), SETTING_SPILL_BUFFER);
    }
    if (Lookup(opener, SETTING_REREAD_BUFFER, value)) {
        options.io.reread_buffer_bytes = ParseBufferSize(value.ToString(), SETTING_REREAD_BUFFER);
    }
    if (Lookup(opener, SETTING_DEALLOCATE, value)) {
        options.deallocate = ParseDeallocateMode(value.ToString());
    }
    return options;
}

bool PrefetchOf(duckdb::optional_ptr<duckdb::FileOpener> opener) {
    duckdb::Value value;
    return !Lookup(opener, SETTING_PREFETCH, value) || value.GetValue<bool>();
}

} // namespace rawduck
