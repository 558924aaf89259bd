//! Reads the files of a volume of format 2 around metadata pages that cannot be read or are damaged: each concerns the
//! files that it tells of, and not the others.
#pragma once

#include "io/block_io.hpp"
#include "volume/damage/volume_files.hpp"
#include "volume/journal/journal_image.hpp"

namespace rawduck {

//! The files of the checkpoint, with the records of the image applied to those that are known. A file is unreadable when
//! its entry, or any of its extents, holes or last bytes, cannot be read. A file of which neither entry nor name can be
//! read is missing. Throws Error IO when the device answers nothing, or UNSUPPORTED as BlockIo.
VolumeFiles SalvageFiles(BlockIo &io, const JournalImage &image);

} // namespace rawduck
