//! The superblock of format 2: where the metadata trees and the log are. Two copies, in the first and in the last
//! allocation unit of the target; the valid one with the higher sequence counts.
//!
//! Invariant: a superblock is written only after everything that it names is durable, and one copy only after the
//! other is durable. What it named before is not given up until both copies are.
#pragma once

#include "volume/catalog/catalog_tree.hpp"
#include "volume/format/superblock.hpp"

namespace rawduck {

constexpr uint32_t TREE_FORMAT_VERSION = 2;
//! Pages for the map of the pages in use (PageSpace): enough for 200 GiB of metadata.
constexpr size_t MAP_PAGES_MAX = 200;
constexpr uint64_t TREE_LOG_BYTES_MIN = 512 * KIB, TREE_LOG_BYTES_MAX = 16 * MIB;

//! Little-endian, as it lies on the device. All positions are allocation units unless the name says bytes. Up to
//! capacity_units as in version 1, so that each version recognises the other.
struct TreeSuperblock {
    char magic[8]; //!< SUPERBLOCK_MAGIC
    uint32_t crc;  //!< CRC32C of the 4096 bytes with this field zero
    uint32_t version;
    uint64_t compat, ro_compat, incompat; //!< feature bits
    Uuid uuid;
    uint64_t sequence; //!< grows with every write of the superblock
    uint64_t capacity_units;
    uint32_t lba_size;              //!< 512 or 4096 bytes; all I/O is in multiples of it
    uint32_t allocation_unit_bytes; //!< ALLOCATION_UNIT_BYTES
    uint64_t log_start[2];          //!< the two areas of the log
    uint64_t log_units;             //!< length of each
    uint64_t data_start, data_end;  //!< files and pages of trees lie in [data_start, data_end)
    uint64_t mounts;     //!< of those that have written: the high half of their epochs and generations
    uint64_t generation; //!< of the checkpoint that the roots are of
    uint64_t epoch;      //!< whose records follow on that checkpoint
    uint32_t log_area;   //!< 0 or 1: where these are
    uint32_t map_crc;    //!< CRC32C of the bytes of the map
    uint64_t map_bytes;
    int64_t created_us; //!< microseconds since 1970-01-01 UTC
    char label[64];
    CatalogRoots roots;
    uint64_t map_units[MAP_PAGES_MAX]; //!< pages that the map lies in, in order, then zeros
    uint8_t reserved[4096 - 376 - 8 * MAP_PAGES_MAX];
};
static_assert(sizeof(TreeSuperblock) == 4096, "a superblock is one allocation unit");
static_assert(offsetof(TreeSuperblock, uuid) == 40, "every version has it there");
static_assert(offsetof(TreeSuperblock, capacity_units) == 64, "every version has it there");
static_assert(offsetof(TreeSuperblock, label) == 168, "FindContents reads it there");
static_assert(offsetof(TreeSuperblock, map_units) == 376, "layout is part of the format");

//! Fills in the checksum.
void SealSuperblock(TreeSuperblock &superblock);

//! Empty when the superblock is whole and this code can use it on a target of this many bytes; otherwise what is wrong
//! with it. `unsupported` distinguishes another version from damage; of an older one it says how to copy its files.
std::string ExamineSuperblock(const TreeSuperblock &superblock, uint64_t target_bytes, bool &unsupported);

//! Lays out an empty volume. Throws Error NO_SPACE below MIN_VOLUME_BYTES.
TreeSuperblock MakeTreeSuperblock(uint64_t capacity_bytes, uint32_t lba_size, const Uuid &uuid,
                                  const std::string &label, int64_t now_us);

//! The allocation units that a superblock's map lies in.
std::vector<uint64_t> MapUnits(const TreeSuperblock &superblock);

//! Epochs and generations of a mount that writes, and no other: the n-th of the mount with this number.
inline uint64_t NumberInMount(uint64_t mount, uint32_t n) {
    return mount << 32 | n;
}
inline uint64_t MountOf(uint64_t number) {
    return number >> 32;
}

//! Where the areas of the log start, and how long they are, in bytes on the target.
inline uint64_t LogStart(const TreeSuperblock &superblock, uint32_t area) {
    return superblock.log_start[area] * ALLOCATION_UNIT_BYTES;
}
inline uint64_t LogBytes(const TreeSuperblock &superblock) {
    return superblock.log_units * ALLOCATION_UNIT_BYTES;
}
inline SpaceMap::Area DataArea(const TreeSuperblock &superblock) {
    return {superblock.data_start, superblock.data_end};
}

} // namespace rawduck
