//! The extension's settings: their names, how they are read where a file is opened, and what they mean.
#pragma once

#include "volume/volume.hpp"

#include "duckdb/common/file_opener.hpp"

namespace rawduck {

constexpr const char *SETTING_ENGINE = "nvme_engine";
constexpr const char *SETTING_QUEUE_MODE = "nvme_queue_mode";
constexpr const char *SETTING_QUEUE_DEPTH = "nvme_queue_depth";
constexpr const char *SETTING_MAX_TRANSFER = "nvme_max_transfer";
constexpr const char *SETTING_MEMORY_SIZE = "nvme_memory_size";
constexpr const char *SETTING_PLACEMENT = "nvme_placement";
constexpr const char *SETTING_SPILL_BUFFER = "nvme_spill_buffer";
constexpr const char *SETTING_REREAD_BUFFER = "nvme_reread_buffer";
constexpr const char *SETTING_DEALLOCATE = "nvme_deallocate";
constexpr const char *SETTING_POLLING = "nvme_polling";
constexpr const char *SETTING_PREFETCH = "nvme_prefetch";

constexpr uint64_t QUEUE_DEPTH_MAX = 4096;
constexpr uint64_t BUFFER_SIZE_LIMIT = 64 * GIB;

//! Each throws Error INVALID, naming the setting and what it accepts.
std::string CheckEngine(const std::string &text);
uint32_t CheckQueueDepth(int64_t depth);
uint32_t ParseMaxTransfer(const std::string &text);
uint64_t ParseMemorySize(const std::string &text);
//! Of a setting that is the size of a buffer.
uint64_t ParseBufferSize(const std::string &text, const char *setting);

//! What the settings of the session or database behind `opener` say now; the defaults without one.
MountOptions MountOptionsOf(duckdb::optional_ptr<duckdb::FileOpener> opener);
bool PrefetchOf(duckdb::optional_ptr<duckdb::FileOpener> opener);

} // namespace rawduck
