//! The superblock: where everything is, and which snapshot is the current one. Two copies, in the first and
//! in the last allocation unit of the target; the valid one with the higher generation counts.
//!
//! Invariant: a superblock is written only after the snapshot that it names is durable, and one copy only
//! after the other is durable, so at every moment at least one copy on the device is whole and names a whole
//! snapshot. Nothing of an epoch is acknowledged before both copies name it.
#pragma once

#include "common/units.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rawduck {

constexpr char SUPERBLOCK_MAGIC[8] = {'R', 'A', 'W', 'D', 'U', 'C', 'K', '\0'};
constexpr uint32_t FORMAT_VERSION = 1;

//! Feature bits: unknown compat bits are ignored, unknown ro_compat bits forbid writing, unknown incompat
//! bits forbid mounting. Version 1 defines none.
constexpr uint64_t KNOWN_RO_COMPAT = 0;
constexpr uint64_t KNOWN_INCOMPAT = 0;

using Uuid = std::array<uint8_t, 16>;

//! Little-endian, as it lies on the device. All positions are allocation units unless the name says bytes.
struct Superblock {
    char magic[8];
    uint32_t crc;     //!< CRC32C of the 4096 bytes with this field zero
    uint32_t version; //!< FORMAT_VERSION
    uint64_t compat, ro_compat, incompat;
    Uuid uuid;
    uint64_t generation; //!< grows with every write of the superblock
    uint64_t capacity_units;
    uint32_t lba_size;              //!< 512 or 4096 bytes; all I/O is in multiples of it
    uint32_t allocation_unit_bytes; //!< ALLOCATION_UNIT_BYTES
    uint64_t metadata_start[2];     //!< the two metadata areas
    uint64_t metadata_units;        //!< length of each
    uint64_t data_start, data_end;  //!< file data lies in [data_start, data_end)
    uint64_t epoch;                 //!< of the current snapshot and the log behind it
    uint32_t active_area;           //!< 0 or 1: which metadata area holds them
    uint32_t snapshot_crc;          //!< CRC32C of the snapshot's bytes
    uint64_t snapshot_bytes;        //!< the snapshot starts the area; the log follows at the next unit
    int64_t created_us;             //!< microseconds since 1970-01-01 UTC
    char label[64];
    uint8_t reserved[4096 - 216];
};
static_assert(sizeof(Superblock) == 4096, "a superblock is one allocation unit");
static_assert(offsetof(Superblock, uuid) == 40, "layout is part of the format");
static_assert(offsetof(Superblock, lba_size) == 72, "layout is part of the format");
static_assert(offsetof(Superblock, epoch) == 120, "layout is part of the format");
static_assert(offsetof(Superblock, label) == 152, "layout is part of the format");

//! Fills in the checksum.
void SealSuperblock(Superblock &superblock);

//! Empty when the superblock is whole and this code can use it on a target of this many bytes; otherwise what
//! is wrong with it. `unsupported` distinguishes a newer format from damage.
std::string ExamineSuperblock(const Superblock &superblock, uint64_t target_bytes, bool &unsupported);

//! Lays out an empty volume. Throws Error NO_SPACE below MIN_VOLUME_BYTES.
constexpr uint64_t MIN_VOLUME_BYTES = 16 * MIB;
Superblock MakeSuperblock(uint64_t capacity_bytes, uint32_t lba_size, const Uuid &uuid,
                          const std::string &label, int64_t now_us);

//! "6f1c…-…": the usual 8-4-4-4-12 form.
std::string UuidText(const Uuid &uuid);
//! A random (version 4) UUID from the kernel. Throws Error IO.
Uuid MakeUuid();

//! A mount reads at most this much log, so that it stays fast; a longer log is cut short by a new snapshot.
constexpr uint64_t LOG_BYTES_MAX = 16 * MIB;

//! Where the log of the active area starts and ends, in bytes on the target.
uint64_t LogStart(const Superblock &superblock);
uint64_t LogEnd(const Superblock &superblock);

} // namespace rawduck
