//! How much room the metadata of a file needs.
#pragma once

#include <cstdint>

namespace rawduck {

//! What the length of a file's metadata depends on.
struct EntrySize {
    uint64_t name_bytes = 0, tail_bytes = 0;
    uint64_t extents = 0, holes = 0;
    uint64_t references = 0; //!< that the tree of references may have for what the file shares

    EntrySize &operator+=(const EntrySize &other);
    //! `other` is part of it.
    EntrySize &operator-=(const EntrySize &other);
};

//! The larger of each.
EntrySize Max(const EntrySize &a, const EntrySize &b);

//! Of metadata pages, that trees need for such a file: with pages half full, and trees of its own where it has
//! them. Grows with each part of the size.
uint64_t MetadataBytes(const EntrySize &size);

} // namespace rawduck
