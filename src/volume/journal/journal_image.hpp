//! What a mount of format 2 has read, besides the trees themselves.
#pragma once

#include "volume/journal/tree_superblock.hpp"

#include <string>
#include <vector>

namespace rawduck {

//! What one superblock copy looks like.
struct SuperblockCopy {
    bool valid = false;
    std::string problem;   //!< empty when valid
    uint64_t sequence = 0; //!< when valid
};

//! The records of one epoch.
struct LogPart {
    uint64_t epoch = 0;
    uint32_t area = 0;
    uint64_t bytes = 0, records = 0; //!< of those that count
};

struct JournalImage {
    TreeSuperblock superblock{};
    int superblock_copy = 0; //!< where it was read from
    SuperblockCopy copies[2];
    bool copies_agree = true; //!< both are valid and the same
    //! One, or two where the log goes on in the other area; the checkpoint of the superblock comes before both.
    std::vector<LogPart> log;
    //! The items of each record, in order.
    std::vector<std::vector<Item>> records;
    std::vector<DataChecksum> last_checksums; //!< what the last record vouches for
    bool torn_tail = false; //!< an unfinished record lies behind the last whole one: normal after a crash
    //! What cannot be read or is invalid, although it may have been durable once. Empty on a healthy volume. The
    //! records are those before the damage, and nobody may write.
    std::string damage;
    std::string damage_place = "log"; //!< or "superblocks", "metadata"
    //! What whole records behind the damage say: they were durable once, and do not count.
    std::vector<Item> lost;
    //! The last record, where nobody can tell whether the data that it vouches for was durable: its items, and the first
    //! byte on the target that cannot be read. No items when there is none.
    std::vector<Item> undecided;
    uint64_t undecided_offset = 0;
};

} // namespace rawduck
