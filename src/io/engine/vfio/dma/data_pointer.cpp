#include "io/engine/vfio/dma/data_pointer.hpp"

#include "common/invariant.hpp"
#include "common/units.hpp"

namespace rawduck {
namespace {

//! Field PSDT of a command: the data pointer is an SGL, metadata a buffer.
constexpr uint8_t USES_SGL = 1 << 6;

} // namespace

void SetPrp(SubmissionEntry &entry, uint64_t iova, uint32_t bytes, uint64_t *list, uint64_t list_iova) {
    RAWDUCK_INVARIANT(IsAligned(iova, DATA_ALIGNMENT) && bytes > 0, "a data pointer is a multiple of 4");
    const uint64_t first_bytes = PAGE_BYTES - iova % PAGE_BYTES;
    entry.data[0] = iova;
    entry.data[1] = 0;
    if (bytes <= first_bytes) {
        return;
    }
    const uint64_t second = iova + first_bytes, end = iova + bytes;
    if (end - second <= PAGE_BYTES) {
        entry.data[1] = second;
        return;
    }
    const uint64_t entries = (end - second + PAGE_BYTES - 1) / PAGE_BYTES;
    RAWDUCK_INVARIANT(list_iova / PAGE_BYTES == (list_iova + entries * sizeof(uint64_t) - 1) / PAGE_BYTES,
                      "a PRP list lies within a page");
    for (uint64_t i = 0; i < entries; i++) {
        list[i] = second + i * PAGE_BYTES;
    }
    entry.data[1] = list_iova;
}

void SetSgl(SubmissionEntry &entry, uint64_t iova, uint32_t bytes) {
    RAWDUCK_INVARIANT(IsAligned(iova, DATA_ALIGNMENT) && bytes > 0, "a data pointer is a multiple of 4");
    entry.flags |= USES_SGL;
    entry.data[0] = iova;
    entry.data[1] = bytes; // the type of the descriptor, in the highest byte, is 0: a data block
}

} // namespace rawduck
