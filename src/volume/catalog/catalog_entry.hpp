//! A file as a volume holds it, all of it.
#pragma once

#include "volume/format/file_kind.hpp"
#include "volume/format/record.hpp"

#include <string>
#include <vector>

namespace rawduck {

struct CatalogEntry {
    std::string name;
    FileKind kind = FileKind::OTHER;
    bool snapshot = false; //!< nothing is written to it
    uint64_t size = 0;     //!< bytes
    int64_t created_us = 0, modified_us = 0;
    std::string tail; //!< the bytes of the partial last LBA; empty when the size is a multiple of the LBA
    std::vector<Extent> extents; //!< in file order, covering the size exactly, rounded up to units
    std::vector<Hole> holes;     //!< sorted, disjoint, below the size
    uint64_t Units() const;      //!< covered by the extents
};

//! The item that creates a file now.
Item CreateItem(uint64_t file_id, FileKind kind, const std::string &name);
//! The item that makes, now, a file with the contents of another.
Item CloneItem(uint64_t file_id, CloneKind kind, const std::string &name, uint64_t source_id);

} // namespace rawduck
