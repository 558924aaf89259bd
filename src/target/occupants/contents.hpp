//! What lies on a target, by its bytes. The user may decide to give it up.
#pragma once

#include "target/target.hpp"

#include <string>
#include <vector>

namespace rawduck {

//! `fd` is the target, opened for reading. Clauses as in
//! Occupant::what. Throws Error IO when it cannot be read.
std::vector<std::string> FindContents(const Target &target, int fd);

//! Whether there is a rawduck volume, also one with a damaged superblock, or a part of one. `fd` and errors as above.
bool HoldsVolume(const Target &target, int fd);

} // namespace rawduck
