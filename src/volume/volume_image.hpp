//! Reads the metadata of a volume: superblocks, snapshot, log. Writes nothing, trusts nothing that it reads.
#pragma once

#include "io/block_io.hpp"
#include "volume/catalog.hpp"

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
    std::vector<Verify> last_verify; //!< what the last record vouches for
    bool torn_tail = false; //!< an unfinished record lies behind the last whole one: normal after a crash
    //! What cannot be read, or does not verify, although it may have been durable once. Empty on a healthy
    //! volume. The catalog then holds the state before the damage, and nobody may write: see
    //! docs/ON_DISK_FORMAT.md.
    std::string damage;
    std::string damage_place = "log"; //!< or "superblock 0"
    //! Such as "superblock 1 is damaged".
    std::string warning;
};

//! Throws Error: INVALID (not a volume), UNSUPPORTED (newer), CORRUPT (both superblocks or the snapshot are
//! damaged), IO (no superblock can be read, or more than some LBAs). `target_name` is for messages.
VolumeImage LoadVolumeImage(BlockIo &io, const std::string &target_name);

//! A mount reads at most this much log, so that it stays fast; a longer log is cut short by a new snapshot.
constexpr uint64_t LOG_BYTES_MAX = 16 * MIB;

//! Where the log of the active area starts and ends, in bytes on the target.
uint64_t LogStart(const Superblock &superblock);
uint64_t LogEnd(const Superblock &superblock);

} // namespace rawduck
