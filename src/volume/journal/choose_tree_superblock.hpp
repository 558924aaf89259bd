//! Which of the two superblocks of format 2 a mount goes by.
#pragma once

#include "io/block_io.hpp"
#include "volume/journal/journal_image.hpp"

namespace rawduck {

//! Reads both copies and fills in those fields of the image that are about superblocks. Returns why the volume must
//! not be written although one of them is valid; empty when it may be. That a single valid copy is old shows in the
//! log (ReadJournal). Throws Error: INVALID (not a volume), UNSUPPORTED (another format), CORRUPT or IO (no copy is
//! valid, or can be read).
std::string ChooseTreeSuperblock(BlockIo &io, JournalImage &image);

} // namespace rawduck
