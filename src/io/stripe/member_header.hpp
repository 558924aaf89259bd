//! What each member of a stripe says of itself and the others: a header in its first allocation unit, and a copy of it in
//! its last one (docs/ON_DISK_FORMAT.md). The only code that knows these bytes.
//!
//! The generation grows whenever somebody begins to write to the stripe, before the first write. All last copies are
//! written first and are durable before a first copy is written; and before that, first copies that an earlier cut has left
//! old or torn, with the generation that every member has. So wherever that is cut, however often in a row,
//!  - each member has one copy that is whole, and
//!  - each has a copy of the session of the newest first copy of all, or a last one that names it as its predecessor. Where
//!    one has neither, it has another history: it is a copy of that member, and others wrote to the stripe since, or to what
//!    it was copied to. Two such histories may have the same generation, but not the same session.
#pragma once

#include "io/device/device.hpp"
#include "target/stripe.hpp"

#include <cstddef>
#include <functional>
#include <optional>

namespace rawduck {

constexpr char MEMBER_MAGIC[8] = {'R', 'A', 'W', 'D', 'U', 'C', 'K', 'M'};
constexpr uint32_t MEMBER_VERSION = 1;

//! Little-endian, as it lies on the device.
struct MemberHeader {
    char magic[8]; //!< MEMBER_MAGIC
    uint32_t crc;  //!< CRC32C of the 4096 bytes with this field zero
    uint32_t version;
    Uuid stripe;
    uint32_t index, count; //!< which of how many members it is
    uint64_t chunk_bytes, data_start;
    uint64_t generation;
    uint32_t lba_size; //!< of all members, in bytes
    uint8_t reserved[4];
    Uuid session;     //!< of who began to write with this generation
    Uuid predecessor; //!< the session that all members had before
    uint8_t reserved_2[24];
    struct Name {
        Uuid uuid;
        uint64_t inode;  //!< of a file; 0: it is none
        char serial[48]; //!< of the drive; filled up with zeros, as what follows
        char path[160];  //!< where it was found last; empty when that is longer
    } members[STRIPE_MEMBERS_MAX];
};
static_assert(offsetof(MemberHeader, stripe) == 16 && offsetof(MemberHeader, index) == 32 &&
                  offsetof(MemberHeader, count) == 36 && offsetof(MemberHeader::Name, path) == 72,
              "FindContents reads them there");
static_assert(offsetof(MemberHeader, members) == 128, "layout is part of the format");
static_assert(sizeof(MemberHeader) == 128 + STRIPE_MEMBERS_MAX * 232, "layout is part of the format");
static_assert(sizeof(MemberHeader) <= ALLOCATION_UNIT_BYTES, "a header is one allocation unit");

//! Both copies of a member, as far as they are whole and belong together.
struct HeaderCopies {
    std::optional<MemberHeader> first, last;
    //! A header of another version of rawduck is there.
    uint32_t unknown_version = 0;
    //! Empty, or why neither place could be read: it may be a member all the same.
    std::string obstacle;

    //! The newer one; null when there is none.
    const MemberHeader *Newest() const;
    uint64_t Generation() const { return Newest() ? Newest()->generation : 0; }
    //! Empty, or what is wrong with one of them.
    std::string Problem() const;
};

//! Reads an allocation unit; false when it cannot be read.
using ReadUnit = std::function<bool(uint64_t offset, char *unit)>;
HeaderCopies ReadHeaders(uint64_t member_bytes, const ReadUnit &read);
HeaderCopies ReadHeaders(Device &device);

//! Of somebody who begins to write.
struct WritingSession {
    uint64_t generation = 0;
    Uuid id = {}, predecessor = {};
};
inline WritingSession SessionOf(const MemberHeader &header) {
    return {header.generation, header.session, header.predecessor};
}

//! Of member `index`.
MemberHeader MakeHeader(const Stripe &stripe, size_t index, uint32_t lba_size, const WritingSession &session);
//! Where a member was found when the header was written.
MemberName RecordedName(const MemberHeader &header, size_t index);

enum class HeaderCopy { FIRST, LAST };
//! Durable with the next flush. Throws Error IO.
void WriteHeader(Device &device, HeaderCopy copy, const MemberHeader &header);
//! Overwrites both places with zeros, whatever is there.
void EraseHeaders(Device &device, const std::string &name);

} // namespace rawduck
