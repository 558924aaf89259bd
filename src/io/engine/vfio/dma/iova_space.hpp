//! Hands out the addresses under which a device sees memory.
#pragma once

#include "io/engine/vfio/pci_function.hpp"

#include <map>

namespace rawduck {

//! Addresses of processes do not serve: an IOMMU may have fewer bits. Not thread-safe.
class IovaSpace {
  public:
    //! Addresses from here up, unless the ranges end below: what is lower may be somebody else's (the
    //! interrupts' window, memory that firmware uses).
    static constexpr uint64_t PREFERRED_FIRST = uint64_t(1) << 32;
    //! Writes to these are interrupts, whatever the kernel's list of ranges says.
    static constexpr IovaRange INTERRUPTS = {0xFEE00000, 0xFEEFFFFF};

    explicit IovaSpace(const std::vector<IovaRange> &ranges);

    //! Both multiples of PAGE_BYTES; `alignment` is a power of two. Nothing when there is no room.
    std::optional<uint64_t> Take(uint64_t bytes, uint64_t alignment);
    //! What Take handed out, whole.
    void Give(uint64_t iova, uint64_t bytes);
    uint64_t FreeBytes() const;

  private:
    void Add(uint64_t first, uint64_t end);

    std::map<uint64_t, uint64_t> free_; //!< first address and end of what is free; never adjacent
};

} // namespace rawduck
