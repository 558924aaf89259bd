//! The errors for a target that is in use.
#pragma once

#include "target/target.hpp"

namespace rawduck {

//! Throws Error LOCKED: something on the target is open in
//! this process, so it cannot be `done` ("formatted").
[[noreturn]] void ThrowInUse(const Target &target, const char *done);
//! Throws Error LOCKED when somebody reads the volume beside whoever writes to it, which no other lock says.
void RequireNoReaders(const Target &target, const char *done);

} // namespace rawduck
