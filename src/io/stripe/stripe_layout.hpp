//! Which byte of a stripe lies where: chunk i is the chunk i / n of member i % n.
#pragma once

#include "target/stripe.hpp"

#include <algorithm>

namespace rawduck {

struct StripeLayout {
    struct Place {
        size_t member;
        uint64_t offset; //!< in the member
    };

    explicit StripeLayout(const Stripe &stripe)
        : chunk_bytes(stripe.chunk_bytes), data_start(stripe.data_start), members(stripe.members.size()) {}

    Place PlaceOf(uint64_t offset) const {
        const uint64_t chunk = offset / chunk_bytes;
        return {static_cast<size_t>(chunk % members),
                data_start + chunk / members * chunk_bytes + offset % chunk_bytes};
    }
    //! The other way round.
    uint64_t OffsetOf(const Place &place) const {
        const uint64_t offset = place.offset - data_start;
        return (offset / chunk_bytes * members + place.member) * chunk_bytes + offset % chunk_bytes;
    }
    //! Of the stripe's bytes before `offset`, how many lie on this member. They are its first ones.
    uint64_t BytesBefore(uint64_t offset, size_t member) const {
        const uint64_t row_bytes = members * chunk_bytes, start = member * chunk_bytes;
        const uint64_t rest = offset % row_bytes;
        return offset / row_bytes * chunk_bytes + std::min(rest > start ? rest - start : 0, chunk_bytes);
    }
    //! Of the stripe, when its smallest member has so many bytes.
    uint64_t CapacityOf(uint64_t member_bytes) const {
        const uint64_t others = data_start + ALLOCATION_UNIT_BYTES;
        const uint64_t rows = member_bytes > others ? (member_bytes - others) / chunk_bytes : 0;
        return rows * members * chunk_bytes;
    }

    uint64_t chunk_bytes, data_start, members;
};

} // namespace rawduck
