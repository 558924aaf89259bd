//! Whether freed space is deallocated on the device. See volume/file/deallocator.hpp.
#pragma once

#include <string>

namespace rawduck {

//! AUTO: except on regular files, whose space is preallocated so that the file system below cannot run out.
enum class DeallocateMode { AUTO, ON, OFF };
//! "auto", "on" or "off". Throws Error INVALID.
DeallocateMode ParseDeallocateMode(const std::string &text);
const char *DeallocateModeName(DeallocateMode mode);

} // namespace rawduck
