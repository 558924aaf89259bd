//! A file as the tree of files holds it.
#pragma once

#include "volume/catalog/catalog_entry.hpp"
#include "volume/format/file_kind.hpp"
#include "volume/format/record.hpp"
#include "volume/tree/tree.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace rawduck {

//! So many extents, and so many holes, lie in the entry of the file; more have a tree of their own.
constexpr size_t ENTRY_EXTENTS_MAX = 8;
constexpr size_t ENTRY_HOLES_MAX = 8;
constexpr size_t ENTRY_NAME_BYTES_MAX = 2048;

struct FileEntry {
    FileKind kind = FileKind::OTHER;
    bool snapshot = false; //!< nothing is written to it
    uint64_t size = 0;     //!< bytes
    uint64_t units = 0;    //!< that the extents cover
    int64_t created_us = 0, modified_us = 0;
    uint32_t tail_bytes = 0; //!< of the partial last LBA; they lie in the tree of tails
    std::string name;
    //! Where a list is not empty it counts, and otherwise the tree.
    TreeRoot extents_root, holes_root;
    std::vector<Extent> extents; //!< in file order, from its start without a gap
    std::vector<Hole> holes;     //!< sorted and disjoint

    //! The file but for its tail, extents and holes.
    CatalogEntry WithoutContents() const;
    std::string Encode() const;
    //! Throws Error CORRUPT for what Encode has not made. `file_id`: for the message.
    static FileEntry Decode(uint64_t file_id, std::string_view bytes);
};

} // namespace rawduck
