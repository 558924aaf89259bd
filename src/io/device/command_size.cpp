#include "io/device/command_size.hpp"

#include "common/error.hpp"
#include "io/device/device_options.hpp"

#include <algorithm>

namespace rawduck {
namespace {

constexpr uint32_t DEFAULT_LIMIT =
    256 * KIB; // one DuckDB block: commands of that size already saturate a device

} // namespace

uint32_t CommandSizeLimit(const std::string &target_name, const DeviceOptions &options, uint32_t device_limit,
                          uint32_t lba_size) {
    uint32_t asked = options.max_transfer_bytes;
    if (asked != 0) {
        if (!IsAligned(asked, lba_size) || asked > MAX_COMMAND_BYTES) {
            throw Error(ErrorCode::INVALID,
                        target_name + ": a command size limit of " + std::to_string(asked) +
                            " bytes is not possible; give a multiple of the LBA size (" +
                            std::to_string(lba_size) + ") up to " + std::to_string(MAX_COMMAND_BYTES));
        }
        return asked;
    }
    uint32_t limit = device_limit == 0 ? DEFAULT_LIMIT : std::min(DEFAULT_LIMIT, device_limit);
    return std::max(static_cast<uint32_t>(AlignDown(limit, lba_size)), lba_size);
}

} // namespace rawduck
