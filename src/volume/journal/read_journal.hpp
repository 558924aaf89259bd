//! Reads superblocks and log of a volume of format 2. Writes nothing, trusts nothing that it reads.
#pragma once

#include "io/block_io.hpp"
#include "volume/journal/journal_image.hpp"

namespace rawduck {

//! Throws as ChooseTreeSuperblock does.
JournalImage ReadJournal(BlockIo &io);

//! Whether superblocks and log on the target are still these: nobody else has written to the volume since. `end`: of the
//! log as the caller knows it, of the epoch that it found last or has begun, if it has not written to that yet (then with
//! no bytes). Throws as ReadJournal.
bool IsUnchanged(BlockIo &io, const TreeSuperblock &superblock, const LogPart &end);

} // namespace rawduck
