//! The data pointer of a command: where the controller finds the memory. Memory that is registered is contiguous
//! for the controller, so one descriptor would do; but only some controllers take those, and others want a list
//! of pages (PRP).
#pragma once

#include "io/engine/vfio/nvme_registers.hpp"

#include <cstdint>

namespace rawduck {

//! Of a controller: a data block at a multiple of this.
constexpr uint32_t DATA_ALIGNMENT = 4;

//! How many entries the list of a transfer has at most, wherever in a page it begins.
constexpr uint32_t PrpListEntriesMax(uint32_t bytes) {
    return (bytes + 4095) / 4096;
}

//! As PRP entries. `list` is where more than two pages are listed, and `list_iova` where the controller sees it;
//! it must not cross a page.
void SetPrp(SubmissionEntry &entry, uint64_t iova, uint32_t bytes, uint64_t *list, uint64_t list_iova);
//! As one SGL data block.
void SetSgl(SubmissionEntry &entry, uint64_t iova, uint32_t bytes);

} // namespace rawduck
