//! Which of the two superblocks a mount goes by, and whether it may write then.
#pragma once

#include "io/block_io.hpp"
#include "volume/log/volume_image.hpp"

namespace rawduck {

//! Reads both copies and fills in those fields of the image that are about superblocks. Returns why the
//! volume must not be written although one of them is valid; empty when it may be. Throws Error: INVALID (not
//! a volume), UNSUPPORTED (written by a newer rawduck), CORRUPT or IO (no copy is valid, or can be read).
std::string ChooseSuperblock(BlockIo &io, const std::string &target_name, VolumeImage &image);

} // namespace rawduck
