//! The error for a target that is in use in this process.
#pragma once

#include "target/target.hpp"

namespace rawduck {

//! Throws Error LOCKED: something on the target is open in
//! this process, so it cannot be `done` ("formatted").
[[noreturn]] void ThrowInUse(const Target &target, const char *done);

} // namespace rawduck
