#include "common/memory/buffers/page_backing.hpp"

#include "common/clock.hpp"
#include "common/invariant.hpp"
#include "common/memory/stable_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <string>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 // Linux 5.14; older C libraries do not name it
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24 // Linux 5.18
#endif

namespace rawduck {

namespace {

//! The kernel marks its setting of transparent huge pages with brackets.
std::optional<bool> SystemsChoice() {
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
    std::string text;
    std::getline(file, text);
    if (text.find("[madvise]") != std::string::npos) {
        return std::nullopt;
    }
    // With "always", all of DuckDB's memory has huge pages.
    return text.find("[always]") != std::string::npos;
}

//! Calls it with offset and length of parts that are neighbours.
template <class CALL> void ForEachRun(uint8_t parts, const CALL &call) {
    for (uint64_t first = 0, end = 0; first < PageBacking::PARTS_PER_CHUNK; first = end + 1) {
        for (end = first; end < PageBacking::PARTS_PER_CHUNK && (parts >> end & 1) != 0; end++) {
        }
        if (end > first) {
            call(first * PageBacking::PART_BYTES, (end - first) * PageBacking::PART_BYTES);
        }
    }
}

} // namespace

bool PageChoice::PrefersHuge() const {
    return small_ns_ == 0 || SMALL_COST * huge_ns_ <= HUGE_COST_MAX * small_ns_;
}

bool PageChoice::NextIsHuge() {
    begun_++;
    if (begun_ <= 3) {
        return begun_ < 3;
    }
    if (until_trial_ == 0) {
        return PrefersHuge(); // another thread is trying
    }
    until_trial_--;
    if (until_trial_ > 0) {
        return PrefersHuge();
    }
    trial_is_huge_ = !PrefersHuge();
    return trial_is_huge_;
}

void PageChoice::Took(bool huge, uint64_t ns) {
    // Not what is preferred by now: that may have changed meanwhile, and the trial would never end.
    const bool was_trial = until_trial_ == 0 && huge == trial_is_huge_;
    huge_count_ += huge ? 1 : 0;
    if (huge && huge_count_ == 2) {
        // Of the first two the faster one: a thread may have been interrupted.
        huge_ns_ = std::min(huge_ns_, ns);
    } else {
        Average(huge ? huge_ns_ : small_ns_, ns);
    }
    if (was_trial) {
        trial_interval_ = PrefersHuge() == trial_is_huge_ ? TRIAL_INTERVAL_MIN
                                                          : std::min(2 * trial_interval_, TRIAL_INTERVAL_MAX);
        until_trial_ = trial_interval_;
    }
}

PageBacking::PageBacking() : always_(SystemsChoice()) {}

bool PageBacking::Back(char *chunk) {
    RAWDUCK_INVARIANT(reinterpret_cast<uintptr_t>(chunk) % CHUNK_BYTES == 0, "a chunk may be one huge page");
    bool huge;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        huge = always_ ? *always_ : choice_.NextIsHuge();
        (huge ? huge_chunks_ : small_chunks_)++;
    }
    // It cannot fail in a way that matters, as below: the memory works without it.
    madvise(chunk, CHUNK_BYTES, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    // Other than wall time, not that of other threads on a busy machine, but that of a virtual machine's host.
    const uint64_t begin_ns = ThreadCpuNs();
    Populate(chunk, CHUNK_BYTES);
    const uint64_t took_ns = ThreadCpuNs() - begin_ns;
    std::lock_guard<std::mutex> lock(mutex_);
    if (!always_) {
        choice_.Took(huge, took_ns);
    }
    return huge;
}

void PageBacking::Populate(char *begin, uint64_t bytes) {
    if (madvise(begin, bytes, MADV_POPULATE_WRITE) == 0 || errno != EINVAL) {
        return; // what is missing, for want of memory, is noticed where it is touched
    }
    // A kernel before 5.14. Other threads may have written there already.
    for (uint64_t at = 0; at < bytes; at += PAGE_BYTES) {
        reinterpret_cast<std::atomic<char> *>(begin + at)->fetch_or(0, std::memory_order_relaxed);
    }
}

void PageBacking::PopulateParts(char *chunk, uint8_t parts) {
    ForEachRun(parts, [chunk](uint64_t offset, uint64_t bytes) { Populate(chunk + offset, bytes); });
}

void PageBacking::ReleaseParts(char *chunk, uint8_t parts) noexcept {
    if (parts != ALL_PARTS) {
        // The kernel would make a huge page of the rest in time, and take memory for these parts again. Kernels
        // without huge pages refuse it, and do not need it.
        madvise(chunk, CHUNK_BYTES, MADV_NOHUGEPAGE);
    }
    ForEachRun(parts, [chunk](uint64_t offset, uint64_t bytes) { Release(chunk + offset, bytes); });
}

void PageBacking::ReleaseInChild(char *chunk, uint8_t parts) noexcept {
    if (parts != ALL_PARTS) {
        madvise(chunk, CHUNK_BYTES, MADV_NOHUGEPAGE); // as ReleaseParts does
    }
    ForEachRun(parts, [chunk](uint64_t offset, uint64_t bytes) {
        madvise(chunk + offset, bytes, MADV_DONTNEED); // where it is refused, the pages stay, as before
    });
}

void PageBacking::Release(char *begin, uint64_t bytes) noexcept {
    StableMemory::TellPagesGo(begin, bytes);
    // A program may have locked all of its memory (mlockall). An older kernel then gives back none of it, and what
    // is free stays in memory: it works, and the program asked for it.
    if (madvise(begin, bytes, MADV_DONTNEED) != 0) {
        const bool is_locked = errno == EINVAL;
        RAWDUCK_INVARIANT(is_locked, "memory of our own can be given back");
        madvise(begin, bytes, MADV_DONTNEED_LOCKED);
    }
}

PageBacking::Counts PageBacking::Count() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return {always_ ? *always_ : choice_.PrefersHuge(), huge_chunks_, small_chunks_, choice_.HugeNs(),
            choice_.SmallNs()};
}

} // namespace rawduck
