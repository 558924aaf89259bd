//! Takes back a file that was made and could not be locked.
#pragma once

#include <string>

namespace rawduck {

//! Removes the file unless somebody has locked it by now, has written to it, or its name leads elsewhere. `fd` is what it was
//! made through, open for writing, and no other is needed: there may be none left.
void RemoveIfUnused(int fd, const std::string &path) noexcept;

} // namespace rawduck
