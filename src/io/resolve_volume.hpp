//! Which target, or targets, a volume lies on.
#pragma once

#include "io/stripe/member_header.hpp"
#include "target/target.hpp"

#include <string>

namespace rawduck {

//! As ResolveTarget. Any member of a stripe stands for all of it: they are looked for, and `stripe` names them. Throws also
//! what FindMembers throws.
Target ResolveVolume(const std::string &name);

//! What a target says of itself as a member of a stripe; no copies where it says nothing, is gone, or may not be read.
HeaderCopies HeadersOf(const Target &target);

//! Of these members, in their order.
Target StripedTarget(const std::string &name, Stripe stripe);

} // namespace rawduck
