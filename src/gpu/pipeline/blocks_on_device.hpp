//! The blocks that a row group needs, on the device, each read once, with verified checksums.
#pragma once

#include "gpu/device/device.hpp"
#include "gpu/pipeline/block_source.hpp"

#include <map>
#include <set>

namespace rawduck::gpu {

class BlocksOnDevice {
  public:
    //! Neighbours are read together, SLOT_BYTES at a time.
    BlocksOnDevice(const std::set<uint64_t> &wanted, BlockSource &source, Device &device,
                   DecodeCounters &counters);

    //! Of a segment, behind the header of its block.
    const uint8_t *At(uint64_t block, uint64_t offset) const;

    static constexpr uint64_t SLOT_BYTES = 16 << 20;

  private:
    void Verify(Device &device, uint64_t block_bytes) const;

    Memory memory_;
    std::map<uint64_t, uint8_t *> places_;
};

} // namespace rawduck::gpu
