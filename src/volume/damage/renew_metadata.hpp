//! Repairs metadata of which nothing is lost.
#pragma once

#include "io/block_io.hpp"
#include "volume/journal/load_metadata.hpp"

namespace rawduck {

//! Writes what a mount that writes would: counts itself in both superblocks, and makes a checkpoint of the trees with the
//! log. Afterwards both superblocks are the same, and nothing of an unfinished record is left that a mount could find.
//! Not for metadata that is damaged. Throws Error as Journal::Append; what was there is then as good as before.
void RenewMetadata(BlockIo &io, LoadedMetadata &metadata);

} // namespace rawduck
