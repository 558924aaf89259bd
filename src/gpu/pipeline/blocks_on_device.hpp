//! The blocks of a window, complete and verified.
#pragma once

#include "gpu/pipeline/block_reader.hpp"

namespace rawduck::gpu {

class BlocksOnDevice {
  public:
    //! `before`: of the window before, or null.
    BlocksOnDevice(BlockWindow window, const BlocksOnDevice *before, Device &device, uint64_t block_bytes);

    //! Of a segment, behind the header of its block.
    const uint8_t *At(uint64_t block, uint64_t offset) const;
    //! Waits for the checksums. Throws CORRUPT, naming the first block whose own does not fit.
    void RequireSound() const;
    uint64_t BytesRead() const { return window_.bytes_read; }

  private:
    BlockWindow window_;
    std::vector<uint64_t> verified_;
    std::unique_ptr<Answer> differences_; //!< a number for each of them; null: none
};

} // namespace rawduck::gpu
