//! Whether two targets are the same bytes, under whatever names.
#pragma once

#include "target/target.hpp"

namespace rawduck {

//! Through links, second nodes, a loop device and what lies below it, a disk and its partition. Not seen: what a device
//! mapper makes of its devices, which the kernel keeps others from.
bool ShareBytes(const Target &left, const Target &right);

} // namespace rawduck
