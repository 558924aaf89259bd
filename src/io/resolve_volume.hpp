//! Which target, or targets, a volume lies on.
#pragma once

#include "io/open_device.hpp"
#include "io/stripe/member_header.hpp"
#include "target/target.hpp"

#include <string>

namespace rawduck {

//! Of a target that somebody else has locked. Its drive may hang, and with it whoever reads it.
enum class WhenLocked {
    READ,
    //! It is taken as it is named (Target::headers_unread), so that the lock is tried or its holder asked. Once it is locked,
    //! OpenDevice reads it, and throws MemberFound if it is a member of a stripe after all.
    LEAVE
};

//! As ResolveTarget. Any member of a stripe stands for all of it: they are looked for, and `stripe` names them. Throws also
//! what FindMembers throws.
Target ResolveVolume(const std::string &name, WhenLocked when_locked = WhenLocked::LEAVE);

//! Returns `use(target)` of the target that the name leads to, from the second attempt where the first one has found a member.
template <typename Use> auto UseVolume(const std::string &name, const Use &use) {
    try {
        return use(ResolveVolume(name));
    } catch (const MemberFound &) {
    }
    return use(ResolveVolume(name, WhenLocked::READ));
}

//! Whether both names lead to one volume. Throws as ResolveVolume.
bool IsSameVolume(const std::string &left, const std::string &right);

//! What a target says of itself as a member of a stripe; no copies where it says nothing. Where it is gone or cannot be read,
//! `obstacle` says why.
HeaderCopies HeadersOf(const Target &target);

//! Of these members, in their order.
Target StripedTarget(const std::string &name, Stripe stripe);

} // namespace rawduck
