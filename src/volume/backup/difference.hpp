//! What differs between two snapshots of a file on one volume, found without reading either of them.
//!
//! No durable byte is overwritten, and what a snapshot has is not given to others. So while both snapshots are kept, bytes that
//! lie at the same place are the same bytes. There is one place where that is not so: behind the last whole LBA of a file, whose
//! bytes are in its metadata, and where another file that goes on from there may write.
#pragma once

#include "volume/file/file_info.hpp"

#include <cstdint>
#include <vector>

namespace rawduck {

struct ChangedRange {
    uint64_t offset = 0, length = 0; //!< bytes
    bool zeros = false;              //!< a hole, where there was something else
};

//! What is to be written to a file with the layout `base`, cut to the size of `now`, so that it reads as `now` does: in
//! ascending order. A null `base` is an empty file. What is not there may be left out where it is a hole that `base` has or ends
//! before.
std::vector<ChangedRange> FindDifference(const FileLayout *base, const FileLayout &now, uint32_t lba_size);

} // namespace rawduck
