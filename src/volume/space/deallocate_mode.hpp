//! Whether the device is told of freed space. See volume/file/deallocator.hpp.
#pragma once

#include <string>

namespace rawduck {

//! AUTO: except on regular files, which were given their space so that the file system below cannot run out.
enum class DeallocateMode { AUTO, ON, OFF };
//! "auto", "on" or "off". Throws Error INVALID.
DeallocateMode ParseDeallocateMode(const std::string &text);

} // namespace rawduck
