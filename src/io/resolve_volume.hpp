//! Which target, or targets, a volume lies on.
#pragma once

#include "io/open_device.hpp"
#include "io/stripe/member_header.hpp"
#include "target/target.hpp"

#include <string>

namespace rawduck {

//! When it is read whether a target is a member of a stripe. Its drive may hang, and with it whoever reads it.
enum class Headers {
    NOW,
    //! Not here (Target::headers_unread): who has it may be asked, or it is locked, and then OpenDevice reads them, and throws
    //! MemberFound where it is a member.
    ONCE_LOCKED
};

//! As ResolveTarget. Any member of a stripe stands for all of it: they are looked for, and `stripe` names them. Throws also
//! what FindMembers throws.
Target ResolveVolume(const std::string &name, Headers headers = Headers::ONCE_LOCKED);

//! Returns `use(target)` of the target that the name leads to, from a second attempt where the first one finds a member.
template <typename Use> auto UseVolume(const std::string &name, const Use &use) {
    try {
        return use(ResolveVolume(name));
    } catch (const MemberFound &) {
    }
    return use(ResolveVolume(name, Headers::NOW));
}

//! Whether both names lead to one volume. Throws as ResolveVolume.
bool IsSameVolume(const std::string &left, const std::string &right);

//! What a target says of itself as a member of a stripe; no copies where it says nothing. Where it is gone or cannot be read,
//! `obstacle` says why.
HeaderCopies HeadersOf(const Target &target);

//! Of these members, in their order.
Target StripedTarget(const std::string &name, Stripe stripe);

} // namespace rawduck
