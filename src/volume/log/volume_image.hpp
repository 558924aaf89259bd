//! The metadata of a volume as it was read.
#pragma once

#include "volume/log/catalog.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rawduck {

//! What one superblock copy looks like.
struct SuperblockState {
    bool valid = false;
    std::string problem; //!< empty when valid
    uint64_t epoch = 0;  //!< when valid
};

struct VolumeImage {
    Superblock superblock;
    int superblock_copy = 0; //!< where it was read from
    SuperblockState copies[2];
    bool copies_agree = true; //!< both are valid and the same
    std::unique_ptr<Catalog> catalog;
    uint64_t log_bytes = 0; //!< of whole records
    uint64_t log_records = 0;
    std::vector<DataChecksum> last_checksums; //!< what the last record vouches for
    bool torn_tail = false; //!< an unfinished record lies behind the last whole one: normal after a crash
    //! What cannot be read or is invalid, although it may have been durable once. Empty on a healthy volume.
    //! The catalog then holds the state before the damage, and nobody may write: see docs/ON_DISK_FORMAT.md.
    std::string damage;
    std::string damage_place = "log"; //!< or "superblock 0"
    //! Space that was written to behind the damage, as far as the log still tells. What files had there
    //! before, and the catalog may still name, is gone.
    std::vector<Extent> overwritten;
    //! Such as "superblock 1 is damaged".
    std::string warning;
};

} // namespace rawduck
