#include "volume/spill/spill_memory.hpp"

#include "common/invariant.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>
#include <unistd.h>

namespace rawduck {

namespace {

//! Blocks differ in length and come and go, so that what is free lies in pieces: the files are longer than what they
//! may hold.
constexpr uint64_t FILES_LENGTH = 4;
//! One file for so many processors. A thread copies some 5 GB/s.
constexpr size_t PROCESSORS_PER_FILE = 2, FILES_MAX = 16;

uint64_t UnitsOf(uint64_t bytes) {
    return AlignUp(bytes, ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES;
}

size_t FileCount() {
    return std::clamp<size_t>(std::thread::hardware_concurrency() / PROCESSORS_PER_FILE, 1, FILES_MAX);
}

uint64_t GrownBytesMax(const SpillLimits &limits) {
    const uint64_t others = limits.MappedBytes() + SpillMemory::TRANSFERS * SpillMemory::TRANSFER_BYTES;
    return limits.bytes_max - std::min(limits.bytes_max, others);
}

//! Nothing is free.
Allocator Empty(AllocationUnit begin, AllocationUnit end) {
    Allocator allocator(begin, end);
    allocator.Claim(begin, Index(end) - Index(begin));
    return allocator;
}

} // namespace

SpillLimits SpillLimits::Free(MemorySupply &supply) {
    const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
    const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return {std::max(pages * page_bytes, MAPPED_BYTES_MAX), &supply};
}

SpillMemory::SpillMemory(const SpillLimits &limits, BlockIo *io)
    : limits_(limits), io_(io), mapped_units_(limits.MappedBytes() / ALLOCATION_UNIT_BYTES),
      grown_units_max_(GrownBytesMax(limits) / ALLOCATION_UNIT_BYTES), files_begin_{mapped_units_},
      files_end_{mapped_units_ + FILES_LENGTH * grown_units_max_},
      mapped_(AllocationUnit{0}, AllocationUnit{mapped_units_}), kept_(Empty(files_begin_, files_end_)),
      bare_(files_begin_, files_end_) {}

std::optional<uint64_t> SpillMemory::Take(uint64_t length) {
    const uint64_t units = UnitsOf(length);
    std::optional<uint64_t> offset;
    try {
        if (mapped_.LargestFree() >= units) {
            if (!memory_) {
                memory_ = std::make_unique<RegisteredMemory>(io_, mapped_units_ * ALLOCATION_UNIT_BYTES);
                if (limits_.supply) {
                    limits_.supply->TryTake(0, 0); // so that it is known how much there is
                }
            }
            const AllocationUnit start =
                mapped_.Allocate(units, AllocationUnit{mapped_units_}, false, 0).start;
            held_units_ = std::max(held_units_, Index(start + units));
            offset = ToBytes(start);
        } else {
            offset = TakeGrown(units);
        }
    } catch (const std::bad_alloc &) {
        return std::nullopt;
    }
    if (offset) {
        shrink_ = false;
        taken_units_ += units;
    }
    return offset;
}

std::optional<uint64_t> SpillMemory::TakeGrown(uint64_t units) {
    const AllocationUnit nowhere = files_end_;
    if (kept_.LargestFree() >= units) {
        const AllocationUnit start = kept_.Allocate(units, nowhere, false, 0).start;
        kept_least_ = std::min(kept_least_, kept_.FreeUnits());
        return ToBytes(start);
    }
    if (bare_.LargestFree() < units || !MayGrow(units)) {
        return std::nullopt;
    }
    if (!files_) {
        transfer_memory_ = std::make_unique<RegisteredMemory>(io_, transfers_.size() * TRANSFER_BYTES);
        files_ = std::make_unique<MemoryFiles>(FileCount());
    }
    const AllocationUnit start = bare_.Allocate(units, nowhere, false, 0).start;
    grown_units_ += units;
    return ToBytes(start);
}

// Pages in pieces that are too short are exchanged for others: that takes nothing from anybody.
bool SpillMemory::MayGrow(uint64_t units) {
    const bool is_within = grown_units_ + units <= grown_units_max_;
    if (is_within &&
        (!limits_.supply || limits_.supply->TryTake(units * ALLOCATION_UNIT_BYTES, GrownBytes()))) {
        return true;
    }
    if (kept_.FreeUnits() < units) {
        return false;
    }
    for (uint64_t released = 0; released < units;) {
        const std::optional<Part> part = TakeUnused((units - released) * ALLOCATION_UNIT_BYTES);
        if (!part) {
            return false;
        }
        GiveToSystem(*part);
        Forget(*part);
        released += part->bytes / ALLOCATION_UNIT_BYTES;
    }
    return true;
}

void SpillMemory::Give(uint64_t offset, uint64_t length) noexcept {
    const uint64_t units = UnitsOf(length);
    const AllocationUnit start{offset / ALLOCATION_UNIT_BYTES};
    RAWDUCK_INVARIANT(IsAligned(offset, ALLOCATION_UNIT_BYTES) && Index(start) + units <= Index(files_end_) &&
                          units <= taken_units_,
                      "what is given back was taken from here");
    taken_units_ -= units;
    try {
        const bool free = (IsMapped(offset) ? mapped_ : kept_).Free(start, units);
        RAWDUCK_INVARIANT(free, "memory of spilled blocks is given back once");
    } catch (const std::bad_alloc &) {
        // It stays out of use until WhenIdle starts anew.
    }
    WhenIdle();
}

bool SpillMemory::Write(uint64_t offset, const char *data, uint64_t length) noexcept {
    if (IsMapped(offset)) {
        memcpy(Address(offset), data, length);
        return true;
    }
    return files_->Write(FileOffset(offset), data, length);
}

void SpillMemory::Read(uint64_t offset, char *data, uint64_t length) const {
    if (IsMapped(offset)) {
        memcpy(data, Address(offset), length);
    } else {
        files_->Read(FileOffset(offset), data, length);
    }
}

char *SpillMemory::TransferArea(Transfers transfers) {
    const auto index = static_cast<size_t>(transfers);
    transfers_[index] = true;
    return transfer_memory_->Data() + index * TRANSFER_BYTES;
}

std::optional<SpillMemory::Part> SpillMemory::TakeUnused(uint64_t bytes) noexcept {
    const uint64_t units = std::min(UnitsOf(bytes), kept_.FreeUnits());
    if (units == 0) {
        return std::nullopt;
    }
    try {
        const Allocator::Result part = kept_.Allocate(units, files_end_, false, 0);
        taken_units_ += part.units;
        return Part{ToBytes(part.start), part.units * ALLOCATION_UNIT_BYTES};
    } catch (const std::bad_alloc &) {
        return std::nullopt;
    }
}

void SpillMemory::IsGone(const Part &part) noexcept {
    Forget(part);
    WhenIdle();
}

void SpillMemory::Forget(const Part &part) noexcept {
    const uint64_t units = part.bytes / ALLOCATION_UNIT_BYTES;
    taken_units_ -= units;
    grown_units_ -= units;
    try {
        bare_.Free(AllocationUnit{part.offset / ALLOCATION_UNIT_BYTES}, units);
    } catch (const std::bad_alloc &) {
        // as in Give
    }
}

uint64_t SpillMemory::HeldBytes() const {
    const uint64_t held = held_units_ * ALLOCATION_UNIT_BYTES;
    const uint64_t in_huge_pages =
        AlignDown(mapped_units_ * ALLOCATION_UNIT_BYTES, HugeMemory::HUGE_PAGE_BYTES);
    const auto areas = static_cast<uint64_t>(std::count(transfers_.begin(), transfers_.end(), true));
    return (held <= in_huge_pages ? AlignUp(held, HugeMemory::HUGE_PAGE_BYTES) : held) + GrownBytes() +
           areas * TRANSFER_BYTES;
}

uint64_t SpillMemory::CapacityBytes() const {
    if (!limits_.supply) {
        return limits_.bytes_max;
    }
    return std::min(limits_.MappedBytes() + limits_.supply->CapacityBytes(GrownBytes()), limits_.bytes_max);
}

uint64_t SpillMemory::LongUnusedBytes() {
    const uint64_t units = std::min(kept_least_, kept_.FreeUnits());
    kept_least_ = kept_.FreeUnits() - units;
    return units * ALLOCATION_UNIT_BYTES;
}

void SpillMemory::Shrink() {
    shrink_ = true;
    WhenIdle();
}

void SpillMemory::WhenIdle() noexcept {
    if (taken_units_ > 0) {
        return;
    }
    const bool is_complete = mapped_.FreeUnits() == mapped_units_ && kept_.FreeUnits() == grown_units_ &&
                             bare_.FreeUnits() + grown_units_ == bare_.TotalUnits();
    if (!shrink_ && is_complete) {
        return;
    }
    try {
        Restart();
    } catch (const std::bad_alloc &) {
        // the next time
    }
}

void SpillMemory::Restart() {
    Allocator mapped(AllocationUnit{0}, AllocationUnit{mapped_units_});
    Allocator kept = Empty(files_begin_, files_end_);
    Allocator bare(files_begin_, files_end_);
    mapped_ = std::move(mapped);
    kept_ = std::move(kept);
    bare_ = std::move(bare);
    files_.reset();
    transfer_memory_.reset();
    transfers_[0] = transfers_[1] = false;
    grown_units_ = 0;
    if (shrink_) {
        memory_.reset();
        held_units_ = 0;
    }
}

} // namespace rawduck
