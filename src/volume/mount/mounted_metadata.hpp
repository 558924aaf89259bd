//! What a mount knows of a volume before it is used.
#pragma once

#include "volume/damage/load_volume.hpp"
#include "volume/readers/reader_image.hpp"
#include "volume/space/space.hpp"

namespace rawduck {

struct MountedMetadata {
    LoadedVolume found;
    FreeSpace free;
    ZoneCandidates candidates;
    UnitCounts shared; //!< as for Space
    //! Why the volume takes no writes; empty on a healthy one.
    std::string damage;
};

//! Throws as LoadVolume does.
MountedMetadata MountMetadata(BlockIo &io);
//! Of what LoadVolume has read, all that is to be known.
MountedMetadata MountLoaded(LoadedVolume found);
//! What a reader beside the writer has: the files of the image, and nothing that could be written. Reads nothing.
MountedMetadata MountImage(BlockIo &io, ReaderImage image);

} // namespace rawduck
