#include "volume/journal/tree_superblock.hpp"

#include "common/crc32c.hpp"
#include "common/error.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

//! One 128th of the volume for each area of the log.
constexpr uint64_t LOG_SHARE = 128;

uint32_t ChecksumOf(TreeSuperblock superblock) {
    superblock.crc = 0;
    return Crc32c(0, &superblock, sizeof(superblock));
}

const uint64_t *MapEnd(const TreeSuperblock &sb) {
    return std::find(sb.map_units, sb.map_units + MAP_PAGES_MAX, 0);
}

bool LayoutIsSane(const TreeSuperblock &sb) {
    const uint64_t last = sb.capacity_units - 1; // holds superblock 1
    if (sb.capacity_units < MIN_VOLUME_BYTES / ALLOCATION_UNIT_BYTES || sb.log_units == 0 ||
        sb.log_units > sb.capacity_units || sb.log_area > 1) {
        return false;
    }
    for (const uint64_t start : sb.log_start) {
        if (start < 1 || start >= last || sb.log_units > last - start) {
            return false;
        }
    }
    const CatalogRoots &roots = sb.roots;
    for (const TreeRoot &root :
         {roots.names, roots.files, roots.tails, roots.space_maps, roots.space_summaries, roots.references}) {
        if (!IsSane(root)) {
            return false;
        }
    }
    const bool areas_overlap =
        sb.log_start[0] < sb.log_start[1] + sb.log_units && sb.log_start[1] < sb.log_start[0] + sb.log_units;
    const uint64_t log_end = std::max(sb.log_start[0], sb.log_start[1]) + sb.log_units;
    if (areas_overlap || sb.data_start < log_end || sb.data_start > sb.data_end || sb.data_end > last ||
        sb.map_bytes > static_cast<uint64_t>(MapEnd(sb) - sb.map_units) * TREE_PAGE_BYTES) {
        return false;
    }
    return std::all_of(sb.map_units, MapEnd(sb), [&](uint64_t unit) {
        return unit >= sb.data_start && unit < sb.data_end && TREE_PAGE_UNITS <= sb.data_end - unit;
    });
}

} // namespace

void SealSuperblock(TreeSuperblock &superblock) {
    superblock.crc = ChecksumOf(superblock);
}

std::string ExamineSuperblock(const TreeSuperblock &sb, uint64_t target_bytes, bool &unsupported) {
    unsupported = false;
    if (memcmp(sb.magic, SUPERBLOCK_MAGIC, sizeof(SUPERBLOCK_MAGIC)) != 0) {
        return "no rawduck superblock";
    }
    if (sb.crc != ChecksumOf(sb)) {
        return "its checksum is wrong";
    }
    unsupported = sb.version != TREE_FORMAT_VERSION || (sb.incompat & ~KNOWN_INCOMPAT) != 0;
    if (sb.version < TREE_FORMAT_VERSION) {
        return "it has format version " + std::to_string(sb.version) +
               ", which this rawduck does not read: copy its files with the rawduck that wrote it (`rawduck "
               "cp`), format it anew, and copy them back";
    }
    if (sb.version > TREE_FORMAT_VERSION) {
        return "it has format version " + std::to_string(sb.version) + ", and this rawduck reads version " +
               std::to_string(TREE_FORMAT_VERSION) + "; use a newer rawduck";
    }
    if (unsupported) {
        return "it uses features that this rawduck does not know (incompat bits " +
               std::to_string(sb.incompat & ~KNOWN_INCOMPAT) + "); use a newer rawduck";
    }
    if ((sb.lba_size != 512 && sb.lba_size != 4096) || sb.allocation_unit_bytes != ALLOCATION_UNIT_BYTES ||
        !LayoutIsSane(sb)) {
        return "its layout makes no sense";
    }
    if (sb.capacity_units > target_bytes / ALLOCATION_UNIT_BYTES) {
        return "it describes a volume of " + std::to_string(sb.capacity_units * ALLOCATION_UNIT_BYTES) +
               " bytes, but the target has only " + std::to_string(target_bytes) + "; was it cut off?";
    }
    return "";
}

TreeSuperblock MakeTreeSuperblock(uint64_t capacity_bytes, uint32_t lba_size, const Uuid &uuid,
                                  const std::string &label, int64_t now_us) {
    if (capacity_bytes < MIN_VOLUME_BYTES) {
        throw Error(ErrorCode::NO_SPACE, "a volume needs at least 16 MiB, and this target has " +
                                             std::to_string(capacity_bytes) +
                                             " bytes; give it a larger --size");
    }
    TreeSuperblock sb{};
    memcpy(sb.magic, SUPERBLOCK_MAGIC, sizeof(SUPERBLOCK_MAGIC));
    sb.version = TREE_FORMAT_VERSION;
    sb.uuid = uuid;
    sb.sequence = 1;
    sb.capacity_units = capacity_bytes / ALLOCATION_UNIT_BYTES;
    sb.lba_size = lba_size;
    sb.allocation_unit_bytes = ALLOCATION_UNIT_BYTES;
    const uint64_t log_bytes =
        std::min(std::max(capacity_bytes / LOG_SHARE, TREE_LOG_BYTES_MIN), TREE_LOG_BYTES_MAX);
    sb.log_units = log_bytes / ALLOCATION_UNIT_BYTES;
    sb.log_start[0] = 1;
    sb.log_start[1] = 1 + sb.log_units;
    // Data starts at a multiple of 1 MiB, so that large extents match the device's own boundaries.
    sb.data_start = AlignUp((1 + 2 * sb.log_units) * ALLOCATION_UNIT_BYTES, MIB) / ALLOCATION_UNIT_BYTES;
    sb.data_end = sb.capacity_units - 1;
    sb.epoch = NumberInMount(0, 1);
    sb.created_us = now_us;
    memcpy(sb.label, label.data(), std::min(label.size(), sizeof(sb.label) - 1));
    SealSuperblock(sb);
    return sb;
}

std::vector<uint64_t> MapUnits(const TreeSuperblock &superblock) {
    return {superblock.map_units, MapEnd(superblock)};
}

} // namespace rawduck
