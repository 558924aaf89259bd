//! The memory of a SpillBuffer: a mapped range whose pages stay once they were touched, and from which devices read
//! and write without a copy; and beyond it MemoryFiles, which grow and shrink in pages.
#pragma once

#include "io/registered_memory.hpp"
#include "volume/space/allocator.hpp"
#include "volume/spill/memory_files.hpp"
#include "volume/spill/memory_supply.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <optional>

namespace rawduck {

//! How much memory there may be.
struct SpillLimits {
    static constexpr uint64_t MAPPED_BYTES_MAX = 28 * MIB;

    //! No more than that.
    static SpillLimits Fixed(uint64_t bytes) { return {bytes, nullptr}; }
    //! As much as `supply` lets one hold, and MAPPED_BYTES_MAX.
    static SpillLimits Free(MemorySupply &supply);

    //! Of the mapped range: little memory is all mapped.
    uint64_t MappedBytes() const {
        return !supply && bytes_max <= 2 * MAPPED_BYTES_MAX ? bytes_max : MAPPED_BYTES_MAX;
    }

    bool IsAllMapped() const { return bytes_max <= MappedBytes(); }

    uint64_t bytes_max;
    MemorySupply *supply; //!< is asked for what is not mapped; null: nobody is
};

//! Not thread-safe, apart from what says so.
class SpillMemory {
  public:
    static constexpr uint64_t TRANSFER_BYTES = 2 * MIB;
    enum class Transfers : uint8_t { WRITES, READS };
    static constexpr size_t TRANSFERS = 2;

    //! `io`: what the memory is transferred to and from; null: nothing.
    explicit SpillMemory(const SpillLimits &limits, BlockIo *io = nullptr);

    //! Memory for that many bytes, with undefined contents: its offset, a multiple of ALLOCATION_UNIT_BYTES. None
    //! when there is no range that long, or the system has none.
    std::optional<uint64_t> Take(uint64_t length);
    //! Gives back what Take returned for that length; pages stay, to be used again. Where the system has no memory
    //! to note it, it is used again once nothing is taken.
    void Give(uint64_t offset, uint64_t length) noexcept;

    //! These two are thread-safe, while what they are for is taken. Write: false when the system has no memory.
    //! Read throws Error IO.
    bool Write(uint64_t offset, const char *data, uint64_t length) noexcept;
    void Read(uint64_t offset, char *data, uint64_t length) const;
    //! Whether it has an address, which a device can take.
    bool IsMapped(uint64_t offset) const { return offset < limits_.MappedBytes(); }
    char *Address(uint64_t offset) const { return memory_->Data() + offset; }
    //! TRANSFER_BYTES with an address, for what has none; while anything is taken.
    char *TransferArea(Transfers transfers);

    //! Pages that are being given back to the system.
    struct Part {
        uint64_t offset, bytes;
    };
    //! Pages that nobody has taken, `bytes` > 0 at most; they count as taken until they are gone. None when there are
    //! none.
    std::optional<Part> TakeUnused(uint64_t bytes) noexcept;
    //! Takes microseconds for each page. Thread-safe.
    void GiveToSystem(const Part &part) const { files_->Release(FileOffset(part.offset), part.bytes); }
    //! After that.
    void IsGone(const Part &part) noexcept;
    //! Of the pages that nobody has taken, those that were not taken at any time since the last call.
    uint64_t LongUnusedBytes();
    //! The system gets all memory back as soon as nothing of it is taken.
    void Shrink();
    //! Bytes of pages, taken or not: of the mapped range those up to the highest that was taken, in huge pages.
    uint64_t HeldBytes() const;
    //! Of these, bytes that Release may give back once they are not taken.
    uint64_t GrownBytes() const { return grown_units_ * ALLOCATION_UNIT_BYTES; }
    //! What it may hold, as far as is known.
    uint64_t CapacityBytes() const;

  private:
    bool MayGrow(uint64_t units);
    void Forget(const Part &part) noexcept;
    std::optional<uint64_t> TakeGrown(uint64_t units);
    uint64_t FileOffset(uint64_t offset) const { return offset - limits_.MappedBytes(); }
    void WhenIdle() noexcept;
    void Restart();

    const SpillLimits limits_;
    BlockIo *const io_;
    const uint64_t mapped_units_, grown_units_max_;
    const AllocationUnit files_begin_, files_end_;
    Allocator mapped_;
    Allocator kept_;                           //!< parts of the files that are not taken, and have pages
    Allocator bare_;                           //!< parts of the files without pages
    std::unique_ptr<RegisteredMemory> memory_; //!< made by the first Take
    std::unique_ptr<MemoryFiles> files_;       //!< made when that is full, and so is the next
    std::unique_ptr<RegisteredMemory> transfer_memory_;
    std::array<std::atomic<bool>, TRANSFERS> transfers_{}; //!< whether the areas have been used
    uint64_t taken_units_ = 0, held_units_ = 0;            //!< held: of the mapped range
    uint64_t grown_units_ = 0;
    uint64_t kept_least_ = 0; //!< units of kept_ since LongUnusedBytes
    bool shrink_ = false;
};

} // namespace rawduck
