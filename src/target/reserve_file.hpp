//! Space of a regular file for a volume, all of it at once, so that the volume does not run out later because the file
//! system below did.
#pragma once

#include <cstdint>
#include <string>

namespace rawduck {

//! Makes the file `size_bytes` long if it is shorter, and reserves its space from the byte `from` on. `fd` is the file,
//! locked; `path` is for messages. Throws Error NO_SPACE or IO; the file may be longer then.
void ReserveFile(int fd, const std::string &path, uint64_t from, uint64_t size_bytes);

} // namespace rawduck
