//! Reads all of a volume of format 2: its trees, its log, its files. Writes nothing, trusts nothing that it reads.
#pragma once

#include "volume/damage/volume_files.hpp"
#include "volume/journal/load_metadata.hpp"

namespace rawduck {

struct LoadedVolume {
    //! Where something of the checkpoint is damaged, the trees are without the log, and there is no free space; the image
    //! says so, too, and nobody may write.
    LoadedMetadata metadata;
    VolumeFiles files;
    //! Space that was written to behind the damage, as far as the log still tells. What files had there before, and
    //! still name, is gone.
    std::vector<Extent> overwritten;
    //! Such as "superblock 1 is damaged".
    std::string warning;
};

//! What is checked once the log is applied to a checkpoint, of which everything was: what the log says of files that it
//! names may be wrong in sum. ALL looks also for what only an error of this code could have caused.
enum class CheckAfterLog { CHANGED_FILES, ALL };

//! Throws Error as ReadJournal. A page that cannot be read or is damaged makes no error of this: see VolumeFiles.
LoadedVolume LoadVolume(BlockIo &io, uint64_t cache_bytes, CheckAfterLog check_after_log);

} // namespace rawduck
