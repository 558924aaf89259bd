#include "io/engine/vfio/dma/dma_window.hpp"

#include "common/invariant.hpp"

#include <algorithm>

namespace rawduck {

DmaWindow::DmaWindow(PciFunction &function, char *begin, uint64_t bytes, uint64_t iova, const Limits &limits)
    : function_(function), begin_(begin), bytes_(bytes), iova_(iova), limits_(limits),
      mapped_(bytes / BLOCK_BYTES) {
    RAWDUCK_INVARIANT(IsAligned(reinterpret_cast<uintptr_t>(begin), BLOCK_BYTES) &&
                          IsAligned(bytes, BLOCK_BYTES),
                      "a window is made of blocks");
}

DmaWindow::Blocks DmaWindow::BlocksOf(const void *memory, uint64_t bytes) const {
    const auto offset = static_cast<uint64_t>(static_cast<const char *>(memory) - begin_);
    RAWDUCK_INVARIANT(Contains(memory) && bytes > 0 && bytes <= bytes_ - offset,
                      "the bytes lie in the window");
    return {offset / BLOCK_BYTES, (offset + bytes - 1) / BLOCK_BYTES + 1};
}

std::optional<uint64_t> DmaWindow::Find(const void *memory, uint64_t bytes) const {
    const Blocks blocks = BlocksOf(memory, bytes);
    for (uint64_t block = blocks.first; block < blocks.end; block++) {
        if (!mapped_[block]) {
            return std::nullopt;
        }
    }
    return iova_ + static_cast<uint64_t>(static_cast<const char *>(memory) - begin_);
}

bool DmaWindow::Map(uint64_t block) {
    if (mapped_blocks_ >= limits_.blocks_max || !limits_.spare.Take(BLOCK_BYTES, limits_.spare_bytes_max)) {
        return false;
    }
    if (function_.MapMemory(begin_ + block * BLOCK_BYTES, BLOCK_BYTES, IovaOf(block)) != 0) {
        limits_.spare.Give(BLOCK_BYTES);
        return false;
    }
    mapped_[block] = true;
    mapped_blocks_++;
    return true;
}

std::optional<uint64_t> DmaWindow::Reach(const void *memory, uint64_t bytes) {
    const Blocks blocks = BlocksOf(memory, bytes);
    for (uint64_t block = blocks.first; block < blocks.end; block++) {
        if (!mapped_[block] && !Map(block)) {
            full_ = true;
            return std::nullopt;
        }
    }
    return Find(memory, bytes);
}

void DmaWindow::Unmap(char *begin, uint64_t bytes) {
    const Blocks blocks = BlocksOf(begin, bytes);
    for (uint64_t block = blocks.first; block < blocks.end; block++) {
        if (mapped_[block]) {
            function_.UnmapMemory(IovaOf(block), BLOCK_BYTES);
            limits_.spare.Give(BLOCK_BYTES);
            mapped_[block] = false;
            mapped_blocks_--;
            full_ = false;
        }
    }
}

void DmaWindow::Forget() {
    limits_.spare.Give(MappedBytes());
    mapped_.assign(mapped_.size(), false);
    mapped_blocks_ = 0;
}

} // namespace rawduck
