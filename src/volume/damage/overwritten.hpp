//! What is gone of the files that a damaged volume is mounted with: records behind the damage have given their space to
//! other data.
#pragma once

#include "volume/damage/volume_files.hpp"

namespace rawduck {

//! `lost`: what records behind the damage say. The extents that they tell of: those that files were given, and those
//! of what was cut off or removed, which is overwritten in place.
std::vector<Extent> FindOverwritten(const VolumeFiles &files, const std::vector<Item> &lost);

//! The file that has this byte of the target once the items are applied, in words.
std::string FileAt(const VolumeFiles &files, const std::vector<Item> &items, uint64_t device_offset);

} // namespace rawduck
