//! Distinguishes a process from its parent. Rings, threads and locks do not survive fork(): their owner
//! remembers the generation in which it made them and does not touch them in another.
#pragma once

#include <cstdint>

namespace rawduck {

//! Counts the fork() calls between the first caller's process and this one. Cheap; never blocks.
uint64_t ForkGeneration();

} // namespace rawduck
