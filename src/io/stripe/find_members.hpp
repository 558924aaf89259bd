//! Finds the other members of a stripe, wherever they are by now: where they were found last, then among all block devices,
//! or in the folders where such files were.
#pragma once

#include "io/stripe/member_header.hpp"

#include <functional>

namespace rawduck {

//! What a target says of itself; no copies where it says nothing, or cannot be asked.
using HeaderReader = std::function<HeaderCopies(const Target &)>;

//! `named` is a member with this header. Throws Error NOT_FOUND naming each that is missing, or INVALID naming two that are
//! the same member: one is a copy of the other, and data is lost when the wrong one is used.
Stripe FindMembers(const Target &named, const MemberHeader &header, const HeaderReader &read);

} // namespace rawduck
