//! Writes an empty volume over what a target holds. In this order, each step durable before the next: wipe, first
//! superblock, second superblock. Cut in between, the target holds the volume that was there or the new one; only a
//! torn first superblock is neither.
#pragma once

#include "io/block_io.hpp"
#include "volume/journal/tree_superblock.hpp"

#include <functional>
#include <vector>

namespace rawduck {

//! What is written of a volume without files.
struct EmptyVolume {
    struct Area {
        uint64_t start = 0, units = 0; //!< in allocation units
    };
    explicit EmptyVolume(const TreeSuperblock &superblock);

    char superblock[ALLOCATION_UNIT_BYTES];
    uint64_t capacity_units;
    std::vector<Area> areas; //!< what commits write to
};

//! Takes away every superblock but the first that a mount could look for, whatever length the target has: those at the
//! end of the new volume, of the one that was there, and of the target. Afterwards the old volume depends on its
//! superblock 0 alone; its other contents are unchanged, because it still exists if formatting is interrupted.
void WipeSuperblocks(BlockIo &io, const EmptyVolume &fresh);

//! With the first superblock the target is the new volume, and what it was is gone. With the second it outlives damage
//! to the first. `between`: is called when the first is durable.
void WriteSuperblocks(BlockIo &io, const EmptyVolume &fresh, const std::function<void()> &between);

//! Writes zeros to what commits write to. In a file with preallocated blocks the file system has to record durably
//! which of them have been written: one more write of its journal for each commit, unless that is done in advance. No
//! mount needs it: records of another volume have another UUID.
void WriteAreas(BlockIo &io, const EmptyVolume &fresh);

} // namespace rawduck
