//! What the superblocks of all versions of the format have in common. That of the present one: tree_superblock.hpp.
#pragma once

#include "common/units.hpp"
#include "common/uuid.hpp"

#include <cstddef>
#include <cstdint>

namespace rawduck {

constexpr char SUPERBLOCK_MAGIC[8] = {'R', 'A', 'W', 'D', 'U', 'C', 'K', '\0'};

//! Feature bits: unknown compat bits are ignored, unknown ro_compat bits forbid writing, unknown incompat
//! bits forbid mounting.
constexpr uint64_t INCOMPAT_SHARED = 1; //!< files may share space: what does not know it would free that
constexpr uint64_t KNOWN_RO_COMPAT = 0;
constexpr uint64_t KNOWN_INCOMPAT = INCOMPAT_SHARED;

constexpr uint64_t MIN_VOLUME_BYTES = 16 * MIB;

} // namespace rawduck
