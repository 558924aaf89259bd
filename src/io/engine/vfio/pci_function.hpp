//! What a driver asks of the bus that its device is on. The one implementation for real devices is VfioFunction;
//! tests have a controller in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rawduck {

//! Addresses that the IOMMU translates for the function, both ends included.
struct IovaRange {
    uint64_t first = 0, last = 0;
};

//! Thread-safe, but for Close: nothing else may run meanwhile, or come later except Close and the destructor.
class PciFunction {
  public:
    virtual ~PciFunction() = default;
    //! "0000:01:00.0"
    virtual const std::string &Address() const = 0;

    //! A register of BAR0. Nothing, or false, when the function does not answer; a function that has left the
    //! bus may also read as ones or zeros.
    virtual std::optional<uint32_t> Read32(uint32_t offset) = 0;
    virtual bool Write32(uint32_t offset, uint32_t value) = 0;
    //! The same for doorbells: without a system call, and without a word about failure.
    virtual void RingDoorbell(uint32_t offset, uint32_t value) = 0;

    virtual std::vector<IovaRange> IovaRanges() = 0;
    //! Lets the function transfer to and from memory. All are multiples of PAGE_BYTES. The memory is locked, and
    //! must neither be unmapped nor given back (MADV_DONTNEED) before UnmapMemory: the function would go on with
    //! the old pages, and nobody would notice. 0 or an errno: ENOMEM when no more may be locked, ENOSPC when
    //! there are too many mappings.
    virtual int MapMemory(void *memory, uint64_t bytes, uint64_t iova) = 0;
    virtual void UnmapMemory(uint64_t iova, uint64_t bytes) = 0;
    //! How many more mappings there may be; UINT64_MAX: nobody tells.
    virtual uint64_t MappingsLeft() = 0;

    //! Resets the function and makes it a bus master again. What it had in flight is over when this returns
    //! true.
    virtual bool Reset() = 0;
    //! The last resort: the function is no bus master any more, and no memory is mapped.
    virtual void StopDma() = 0;

    //! A descriptor (eventfd) for each of `count` interrupts, which become readable; fewer where the function has
    //! fewer, none where it has no MSI-X. They belong to the function. To be called again after Reset.
    virtual std::vector<int> EnableInterrupts(uint32_t count) = 0;
    virtual uint32_t InterruptsMax() = 0;
    //! Becomes readable when the kernel wants the function back, and waits until Close. -1: not told.
    virtual int RemovalDescriptor() = 0;
    //! Gives the function back to the kernel.
    virtual void Close() = 0;
};

} // namespace rawduck
