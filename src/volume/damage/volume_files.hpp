//! The files of a volume as a mount has read them, all in memory.
#pragma once

#include "volume/catalog/catalog_entry.hpp"

#include <map>

namespace rawduck {

//! A file of which a part of the metadata cannot be read. What is not known is empty.
struct UnreadableFile {
    std::string name;
    FileKind kind = FileKind::OTHER;
    uint64_t size = 0; //!< bytes
    std::string why;   //!< which metadata page, and what is wrong with it
};

struct VolumeFiles {
    std::map<uint64_t, CatalogEntry> entries;      //!< by id
    std::map<uint64_t, UnreadableFile> unreadable; //!< by id; nobody may write where there is one
};

} // namespace rawduck
