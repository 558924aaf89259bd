//! The stripes that this process uses, so that a member of one that is locked need not be read.
#pragma once

#include "target/stripe.hpp"

#include <memory>

namespace rawduck {

//! Until its last user is gone. Thread-safe, as is KnownStripe.
void RememberStripe(const std::shared_ptr<const Stripe> &stripe);
//! Of which `target` is a member; null where none is known.
std::shared_ptr<const Stripe> KnownStripe(const Target &target);

} // namespace rawduck
