//! What a reader beside the writer needs of a volume, as the writer sends it: no metadata is read from the device, where
//! it changes meanwhile.
#pragma once

#include "volume/catalog/catalog_entry.hpp"
#include "volume/journal/tree_superblock.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace rawduck {

struct ReaderImage {
    TreeSuperblock superblock{};
    std::vector<CatalogEntry> files;
};

std::string EncodeReaderImage(const ReaderImage &image);
//! Throws Error CORRUPT for what is no image, and for extents outside the volume.
ReaderImage DecodeReaderImage(std::string_view bytes, const std::string &target_name);

} // namespace rawduck
