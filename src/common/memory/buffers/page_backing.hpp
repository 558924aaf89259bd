//! Puts pages under memory that is mapped but was not touched: huge ones where the system has them quickly.
#pragma once

#include "common/memory/huge_memory.hpp"

#include <cstdint>
#include <mutex>
#include <optional>

namespace rawduck {

//! Which kind of pages a chunk gets next, from how long the last ones took. Pure. Not thread-safe, but chunks may
//! overlap: several may be asked for before the first one tells what it took.
//!
//! Huge pages save most of the page faults and let a device write to them with few descriptors, but the host of a
//! virtual machine may have to find 2 MiB of memory for each of them: some milliseconds instead of about a tenth.
class PageChoice {
  public:
    //! Huge pages may take longer than small ones in this proportion: what comes later is faster with them.
    static constexpr uint64_t HUGE_COST_MAX = 3, SMALL_COST = 2;
    //! Chunks until the other kind is tried again. Doubles when the trial changed nothing.
    static constexpr uint64_t TRIAL_INTERVAL_MIN = 64, TRIAL_INTERVAL_MAX = 4096;

    //! Whether the next chunk should get huge pages. The first two do, and the third does not.
    bool NextIsHuge();
    //! What the chunk took.
    void Took(bool huge, uint64_t ns);
    //! Whether huge pages are what chunks get, apart from trials.
    bool PrefersHuge() const;
    //! Mean times of a chunk, in nanoseconds; 0 before the first one.
    uint64_t HugeNs() const { return huge_ns_; }
    uint64_t SmallNs() const { return small_ns_; }

  private:
    static void Average(uint64_t &mean, uint64_t ns) { mean = mean == 0 ? ns : (3 * mean + ns) / 4; }

    uint64_t huge_ns_ = 0, small_ns_ = 0;
    uint64_t begun_ = 0, huge_count_ = 0;
    uint64_t until_trial_ = TRIAL_INTERVAL_MIN;
    uint64_t trial_interval_ = TRIAL_INTERVAL_MIN;
    bool trial_is_huge_ = false; //!< the kind that is tried while until_trial_ is 0
};

//! Thread-safe.
class PageBacking {
  public:
    static constexpr uint64_t CHUNK_BYTES = HugeMemory::HUGE_PAGE_BYTES;
    //! Of a chunk, each with a bit in a mask.
    static constexpr uint64_t PARTS_PER_CHUNK = 8, PART_BYTES = CHUNK_BYTES / PARTS_PER_CHUNK;
    static constexpr uint8_t ALL_PARTS = 0xff;

    struct Counts {
        bool huge = false; //!< what the next chunks get
        uint64_t huge_chunks = 0, small_chunks = 0;
        uint64_t huge_ns = 0, small_ns = 0; //!< mean of a chunk; 0 before the first one
    };

    //! Reads the system's setting.
    PageBacking();

    //! Puts pages under a chunk, which begins at a multiple of its size. What is in it stays. Where the kernel does
    //! not do this in advance, pages come when they are touched. Returns whether they are huge.
    bool Back(char *chunk);
    //! Puts small pages under parts of a chunk.
    static void PopulateParts(char *chunk, uint8_t parts);
    //! Gives parts of a chunk back to the system; what was in them is lost.
    static void ReleaseParts(char *chunk, uint8_t parts) noexcept;
    //! The same in a child that fork() has just made: nothing of it is known to rings there.
    static void ReleaseInChild(char *chunk, uint8_t parts) noexcept;
    static uint64_t CountParts(uint8_t parts) { return static_cast<uint64_t>(__builtin_popcount(parts)); }
    Counts Count() const;

    //! For fork(): the child must not find the lock held by a thread that it does not have.
    std::mutex &Mutex() { return mutex_; }

  private:
    static void Populate(char *begin, uint64_t bytes);
    static void Release(char *begin, uint64_t bytes) noexcept;

    mutable std::mutex mutex_; //!< guards what follows; no other lock is taken while it is held
    PageChoice choice_;
    std::optional<bool> always_; //!< the system's setting leaves no choice
    uint64_t huge_chunks_ = 0, small_chunks_ = 0;
};

} // namespace rawduck
