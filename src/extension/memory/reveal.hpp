//! Private members of DuckDB's classes, where it has no function for what is needed.
#pragma once

namespace rawduck {

//! The language lets an explicit instantiation name private members. TAG, of this namespace, has the type of the
//! pointer to the member, Pointer, and declares `friend Pointer MemberOf(TAG)`.
template <class TAG, typename TAG::Pointer MEMBER> struct Reveal {
    friend typename TAG::Pointer MemberOf(TAG) { return MEMBER; }
};

} // namespace rawduck
