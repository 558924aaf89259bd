//! Whether the object class can read in an erasure-coded pool, which depends on the version of Ceph: there it is
//! tried before a query is pushed, so that EXPLAIN says what the first query would find out.
#pragma once

#include "ceph/pushdown/scan/object_calls.hpp"

namespace rawduck_ceph {

//! In an erasure-coded pool in which no call has succeeded: calls the class once for this object, for its number of
//! rows, unless calls have failed in the last minute. The pool's feedback has the outcome. Throws InterruptException.
void TryClass(const CallTarget &object, const std::shared_ptr<ObjectPins> &pins);

} // namespace rawduck_ceph
