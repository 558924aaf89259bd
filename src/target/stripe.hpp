//! A stripe: several targets that a volume lies on as if they were one. What lies where: docs/STRIPES.md.
#pragma once

#include "common/units.hpp"
#include "common/uuid.hpp"
#include "target/target.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace rawduck {

constexpr size_t STRIPE_MEMBERS_MIN = 2, STRIPE_MEMBERS_MAX = 16;
//! Chunks are powers of two, in bytes. The default is DuckDB's block: a block is read by one command, from one drive, and a
//! scan, which reads runs of blocks, has every drive busy.
constexpr uint64_t CHUNK_BYTES_MIN = 16 * KIB, CHUNK_BYTES_MAX = 16 * MIB, CHUNK_BYTES_DEFAULT = 256 * KIB;

//! Where a member was found, and what tells it from a copy of its bytes that lies elsewhere.
struct MemberName {
    std::string path;   //!< of the block device or file, or the name of a target in this process
    std::string serial; //!< of the drive; empty when it has none
    uint64_t inode = 0; //!< of a file
};
bool operator==(const MemberName &a, const MemberName &b);

struct StripeMember {
    Target target;
    Uuid uuid = {}; //!< its own
    MemberName name;
};

struct Stripe {
    Uuid uuid = {};
    uint64_t chunk_bytes = 0;
    uint64_t data_start =
        0; //!< in each member; what lies before, and the last allocation unit, say what it is
    std::vector<StripeMember> members;
};

//! As it is now.
MemberName NameOf(const Target &target);
//! "/dev/nvme1n1 (serial S4EW)", for messages.
std::string NameText(const MemberName &name);

//! The targets that have to be locked and opened: the members, or the target itself.
std::vector<Target> PartsOf(const Target &target);

} // namespace rawduck
