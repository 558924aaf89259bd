//! Reads the metadata of a volume: superblocks, snapshot, log. Writes nothing, trusts nothing that it reads.
#pragma once

#include "io/block_io.hpp"
#include "volume/log/volume_image.hpp"

#include <string>

namespace rawduck {

//! Throws Error: INVALID (not a volume), UNSUPPORTED (newer), CORRUPT (both superblocks or the snapshot are
//! damaged), IO (no superblock can be read, or more than some LBAs). `target_name` is for messages.
VolumeImage LoadVolumeImage(BlockIo &io, const std::string &target_name);

//! Whether superblocks and log on the target are still these: nobody else has written to the volume since.
//! `log_bytes`: of the log of this epoch. Throws as LoadVolumeImage does.
bool IsUnchanged(BlockIo &io, const std::string &target_name, const Superblock &superblock,
                 uint64_t log_bytes);

} // namespace rawduck
