//! What is asked of a target before it is formatted.
#pragma once

#include "io/block_io.hpp"
#include "target/occupants/occupants.hpp"
#include "target/target.hpp"
#include "volume/mount/options.hpp"

#include <string>
#include <vector>

namespace rawduck {

//! What lies on a target that has no node, and so none to be examined through. Signatures lie at its beginning
//! and at its end: these are copied into a file as long as the target, in memory, whose rest reads as zeros.
std::vector<Occupant> OccupantsThrough(const Target &target, BlockIo &io);

//! A memory target that exists holds something, whatever it is.
std::vector<Occupant> MemoryOccupants(const Target &target);

//! Throws Error INVALID or NO_SPACE.
void CheckFormatOptions(const std::string &target_name, const FormatOptions &options);

//! Whether this can only become a regular file that has to be created.
bool IsMissingFile(const std::string &target_name);

//! The same; throws Error NOT_FOUND where it was not said how large it shall be.
bool MustBeCreated(const std::string &target_name, const FormatOptions &options);

//! Throws Error INVALID when the target does not take the one that was asked for.
uint32_t ChooseLbaSize(const Target &target, const FormatOptions &options, uint32_t device_lba);

void RequireWritable(const Target &target, bool read_only);

} // namespace rawduck
