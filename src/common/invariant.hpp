//! Invariants, checked where they must hold. A broken invariant means that the code is wrong about the
//! contents of the target or of a buffer. Continuing could overwrite valid data, so the process aborts, and
//! the target stays as the last commit left it.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace rawduck {

//! Names the invariant on standard error and aborts. Safe in functions that must not throw.
[[noreturn]] inline void FailInvariant(const char *condition, const char *why, const char *file, int line) {
    std::fprintf(stderr, "rawduck: invariant broken: %s (%s), %s:%d; please report it\n", why, condition,
                 file, line);
    std::abort();
}

} // namespace rawduck

//! Always on: for conditions that cost a few instructions.
#define RAWDUCK_INVARIANT(condition, why)                                                                    \
    ((condition) ? static_cast<void>(0) : rawduck::FailInvariant(#condition, why, __FILE__, __LINE__))

//! On in tests, sanitizer builds and fuzzing: for conditions that walk a structure.
#ifdef RAWDUCK_SLOW_INVARIANTS
#define RAWDUCK_SLOW_INVARIANT(condition, why) RAWDUCK_INVARIANT(condition, why)
#else
#define RAWDUCK_SLOW_INVARIANT(condition, why) static_cast<void>(sizeof(condition))
#endif
