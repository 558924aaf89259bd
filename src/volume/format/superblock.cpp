#include "volume/format/superblock.hpp"

#include "common/crc32c.hpp"
#include "common/error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sys/random.h>

namespace rawduck {

namespace {

constexpr uint64_t METADATA_BYTES_MIN = 512 * KIB;
constexpr uint64_t METADATA_BYTES_MAX = 128 * MIB;
//! One 128th of the volume for each metadata area: room for a record of every extent that fits in the rest.
constexpr uint64_t METADATA_SHARE = 128;

uint32_t ChecksumOf(Superblock superblock) {
    superblock.crc = 0;
    return Crc32c(0, &superblock, sizeof(superblock));
}

bool LayoutIsSane(const Superblock &sb) {
    const uint64_t last = sb.capacity_units - 1; // holds superblock 1
    if (sb.capacity_units < MIN_VOLUME_BYTES / ALLOCATION_UNIT_BYTES || sb.metadata_units == 0 ||
        sb.metadata_units > sb.capacity_units || sb.active_area > 1) {
        return false;
    }
    for (uint64_t start : sb.metadata_start) {
        if (start < 1 || start >= last || sb.metadata_units > last - start) {
            return false;
        }
    }
    const bool areas_overlap = sb.metadata_start[0] < sb.metadata_start[1] + sb.metadata_units &&
                               sb.metadata_start[1] < sb.metadata_start[0] + sb.metadata_units;
    const uint64_t metadata_end = std::max(sb.metadata_start[0], sb.metadata_start[1]) + sb.metadata_units;
    return !areas_overlap && sb.data_start >= metadata_end && sb.data_start <= sb.data_end &&
           sb.data_end <= last && sb.snapshot_bytes <= sb.metadata_units * ALLOCATION_UNIT_BYTES;
}

} // namespace

void SealSuperblock(Superblock &superblock) {
    superblock.crc = ChecksumOf(superblock);
}

std::string ExamineSuperblock(const Superblock &sb, uint64_t target_bytes, bool &unsupported) {
    unsupported = false;
    if (memcmp(sb.magic, SUPERBLOCK_MAGIC, sizeof(SUPERBLOCK_MAGIC)) != 0) {
        return "no rawduck superblock";
    }
    if (sb.crc != ChecksumOf(sb)) {
        return "its checksum is wrong";
    }
    if (sb.version > FORMAT_VERSION) {
        unsupported = true;
        return "it has format version " + std::to_string(sb.version) +
               ", and this rawduck reads up to version " + std::to_string(FORMAT_VERSION) +
               "; use a newer rawduck";
    }
    if ((sb.incompat & ~KNOWN_INCOMPAT) != 0) {
        unsupported = true;
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

Superblock MakeSuperblock(uint64_t capacity_bytes, uint32_t lba_size, const Uuid &uuid,
                          const std::string &label, int64_t now_us) {
    if (capacity_bytes < MIN_VOLUME_BYTES) {
        throw Error(ErrorCode::NO_SPACE, "a volume needs at least 16 MiB, and this target has " +
                                             std::to_string(capacity_bytes) +
                                             " bytes; give it a larger --size");
    }
    Superblock sb{};
    memcpy(sb.magic, SUPERBLOCK_MAGIC, sizeof(SUPERBLOCK_MAGIC));
    sb.version = FORMAT_VERSION;
    sb.uuid = uuid;
    sb.generation = 1;
    sb.capacity_units = capacity_bytes / ALLOCATION_UNIT_BYTES;
    sb.lba_size = lba_size;
    sb.allocation_unit_bytes = ALLOCATION_UNIT_BYTES;
    const uint64_t area_bytes =
        std::min(std::max(capacity_bytes / METADATA_SHARE, METADATA_BYTES_MIN), METADATA_BYTES_MAX);
    sb.metadata_units = area_bytes / ALLOCATION_UNIT_BYTES;
    sb.metadata_start[0] = 1;
    sb.metadata_start[1] = 1 + sb.metadata_units;
    // Data starts at a multiple of 1 MiB, so that large extents match the device's own boundaries.
    sb.data_start = AlignUp((1 + 2 * sb.metadata_units) * ALLOCATION_UNIT_BYTES, MIB) / ALLOCATION_UNIT_BYTES;
    sb.data_end = sb.capacity_units - 1;
    sb.epoch = 1;
    sb.created_us = now_us;
    memcpy(sb.label, label.data(), std::min(label.size(), sizeof(sb.label) - 1));
    SealSuperblock(sb);
    return sb;
}

std::string UuidText(const Uuid &uuid) {
    std::string text;
    for (size_t i = 0; i < uuid.size(); i++) {
        char byte[3];
        snprintf(byte, sizeof(byte), "%02x", uuid[i]);
        text += byte;
        if (i == 3 || i == 5 || i == 7 || i == 9) {
            text += '-';
        }
    }
    return text;
}

Uuid MakeUuid() {
    Uuid uuid;
    if (getrandom(uuid.data(), uuid.size(), 0) != static_cast<ssize_t>(uuid.size())) {
        throw Error(ErrorCode::IO,
                    "the kernel gave no random bytes for the volume's UUID: " + ErrnoText(errno));
    }
    uuid[6] = (uuid[6] & 0x0F) | 0x40;
    uuid[8] = (uuid[8] & 0x3F) | 0x80;
    return uuid;
}

uint64_t LogStart(const Superblock &sb) {
    return sb.metadata_start[sb.active_area] * ALLOCATION_UNIT_BYTES +
           AlignUp(sb.snapshot_bytes, ALLOCATION_UNIT_BYTES);
}

uint64_t LogEnd(const Superblock &sb) {
    const uint64_t area_end = (sb.metadata_start[sb.active_area] + sb.metadata_units) * ALLOCATION_UNIT_BYTES;
    return std::min(area_end, LogStart(sb) + LOG_BYTES_MAX);
}

} // namespace rawduck
