//! Tells a process from its parent. Rings, threads and locks do not survive fork(): whoever owns one
//! remembers the generation in which it was made and refuses to touch it in another.
#pragma once

#include <cstdint>

namespace rawduck {

//! Counts the fork() calls between the first caller's process and this one. Cheap; never blocks.
uint64_t ForkGeneration();

} // namespace rawduck
