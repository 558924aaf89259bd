//! Finds out who holds a file lock, for messages.
#pragma once

#include <string>

namespace rawduck {

//! A clause such as "process 4711 (python3) holds a lock on it". `shared` tells which lock could not be had.
std::string DescribeLockHolder(int fd, bool shared);

} // namespace rawduck
