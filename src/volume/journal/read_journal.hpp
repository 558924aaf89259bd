//! Reads superblocks and log of a volume of format 2. Writes nothing, trusts nothing that it reads.
#pragma once

#include "io/block_io.hpp"
#include "volume/journal/journal_image.hpp"

namespace rawduck {

//! Throws as ChooseTreeSuperblock does.
JournalImage ReadJournal(BlockIo &io);

} // namespace rawduck
