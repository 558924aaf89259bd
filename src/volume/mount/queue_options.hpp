//! How a target's queues are used, as one text of pairs: for whoever compares I/O paths.
#pragma once

#include "volume/mount/options.hpp"

#include <string>

namespace rawduck {

//! The setting that has this form; messages name it.
constexpr const char *QUEUES_SETTING = "nvme_queues";

//! "mode=pool,depth=64,max_transfer=256 KiB,polling=on" in any order. What is not named keeps its default;
//! "" and "default" name nothing. Throws Error INVALID that names the key, the value and what is allowed.
void ParseQueueOptions(const std::string &text, MountOptions &options);
//! The same text with all keys.
std::string QueueOptionsText(const MountOptions &options);

} // namespace rawduck
