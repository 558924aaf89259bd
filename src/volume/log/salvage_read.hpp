//! Reads metadata around LBAs that the device cannot read: one of them must not hide what the others say.
#pragma once

#include "io/block_io.hpp"

#include <map>
#include <string>

namespace rawduck {

//! LBAs that could not be read, by where they start in bytes on the target, with what was said of each: it
//! names target, LBA and cause.
using UnreadableLbas = std::map<uint64_t, std::string>;

//! What was said of the first that starts in this range of the target; empty when there is none.
std::string ErrorWithin(const UnreadableLbas &unreadable, uint64_t device_offset, uint64_t length);

//! Of one read: beyond that it is not the medium that fails, but the device.
constexpr size_t UNREADABLE_LBAS_MAX = 256;

//! Reads a range of the target. An LBA that cannot be read is zeros in `data` and is added to `unreadable`.
//! Throws Error as BlockIo::Read, IO only when more than UNREADABLE_LBAS_MAX LBAs cannot be read.
void ReadAround(BlockIo &io, uint64_t device_offset, char *data, uint64_t length, UnreadableLbas &unreadable);

} // namespace rawduck
