//! What the superblocks of all versions of the format have in common. That of the present one: tree_superblock.hpp.
#pragma once

#include "common/units.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rawduck {

constexpr char SUPERBLOCK_MAGIC[8] = {'R', 'A', 'W', 'D', 'U', 'C', 'K', '\0'};

//! Feature bits: unknown compat bits are ignored, unknown ro_compat bits forbid writing, unknown incompat
//! bits forbid mounting.
constexpr uint64_t INCOMPAT_SHARED = 1; //!< files may share space: what does not know it would free that
constexpr uint64_t KNOWN_RO_COMPAT = 0;
constexpr uint64_t KNOWN_INCOMPAT = INCOMPAT_SHARED;

constexpr uint64_t MIN_VOLUME_BYTES = 16 * MIB;

using Uuid = std::array<uint8_t, 16>;

//! "6f1c…-…": the usual 8-4-4-4-12 form.
std::string UuidText(const Uuid &uuid);
//! A random (version 4) UUID from the kernel. Throws Error IO.
Uuid MakeUuid();

} // namespace rawduck
