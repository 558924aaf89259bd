#include "common/memory/buffers/staging_arena.hpp"

#include "common/invariant.hpp"

namespace rawduck {

uint64_t StagingArena::FindFree(uint64_t count) const {
    uint64_t run = 0;
    for (uint64_t unit = 0; unit < UNITS; unit++) {
        run = used_[unit] ? 0 : run + 1;
        if (run == count) {
            return unit + 1 - count;
        }
    }
    return UNITS;
}

bool StagingArena::IsFree(uint64_t chunk) const {
    for (uint64_t unit = chunk * UNITS_PER_CHUNK; unit < (chunk + 1) * UNITS_PER_CHUNK; unit++) {
        if (used_[unit]) {
            return false;
        }
    }
    return true;
}

char *StagingArena::Allocate(uint64_t bytes) {
    RAWDUCK_INVARIANT(bytes > 0 && bytes % UNIT_BYTES == 0 && bytes <= LENGTH_MAX,
                      "runs of blocks are allocated here");
    const uint64_t count = bytes / UNIT_BYTES;
    std::bitset<CHUNKS> to_back;
    uint64_t begin;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        begin = FindFree(count);
        if (begin == UNITS) {
            return nullptr;
        }
        lengths_[begin] = static_cast<uint16_t>(count);
        for (uint64_t unit = begin; unit < begin + count; unit++) {
            const uint64_t chunk = unit / UNITS_PER_CHUNK;
            used_[unit] = true;
            touched_[chunk] = true;
            // Who shares the chunk meanwhile finds it without pages, and gets them one by one.
            if (!backed_[chunk]) {
                backed_[chunk] = true;
                to_back[chunk] = true;
            }
        }
    }
    for (uint64_t chunk = 0; to_back.any() && chunk < CHUNKS; chunk++) {
        if (to_back[chunk]) {
            char *const memory = memory_ + chunk * PageBacking::CHUNK_BYTES;
            const bool huge = backing_.Back(memory);
            if (IsListed(chunk)) {
                StableMemory::Add(memory, PageBacking::CHUNK_BYTES,
                                  huge ? HugeMemory::Pages::HUGE : HugeMemory::Pages::AS_ADVISED_LATER);
            }
        }
    }
    return memory_ + begin * UNIT_BYTES;
}

void StagingArena::Free(char *memory) {
    const auto offset = static_cast<uint64_t>(memory - memory_);
    const uint64_t begin = offset / UNIT_BYTES;
    std::lock_guard<std::mutex> lock(mutex_);
    RAWDUCK_INVARIANT(offset % UNIT_BYTES == 0 && begin < UNITS && lengths_[begin] > 0,
                      "what is freed was allocated here, and is freed once");
    for (uint64_t unit = begin; unit < begin + lengths_[begin]; unit++) {
        used_[unit] = false;
    }
    lengths_[begin] = 0;
    // What is at the end is needed least.
    uint64_t kept_bytes = 0;
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
        if (backed_[chunk] && IsFree(chunk)) {
            kept_bytes += PageBacking::CHUNK_BYTES;
            if (kept_bytes > KEPT_MAX) {
                GiveBack(chunk);
            }
        }
    }
}

//! Under the lock: nobody may take it meanwhile. It takes microseconds.
void StagingArena::GiveBack(uint64_t chunk) {
    char *const memory = memory_ + chunk * PageBacking::CHUNK_BYTES;
    if (IsListed(chunk)) {
        StableMemory::Remove(memory);
    }
    PageBacking::Release(memory, PageBacking::CHUNK_BYTES);
    backed_[chunk] = false;
}

void StagingArena::GiveBackUnused() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
        const bool is_free = IsFree(chunk);
        if (backed_[chunk] && is_free && !touched_[chunk]) {
            GiveBack(chunk);
        }
        touched_[chunk] = !is_free;
    }
}

StagingArena::Counts StagingArena::Count() const {
    std::lock_guard<std::mutex> lock(mutex_);
    Counts counts;
    counts.used_bytes = used_.count() * UNIT_BYTES;
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
        counts.kept_bytes += backed_[chunk] && IsFree(chunk) ? PageBacking::CHUNK_BYTES : 0;
    }
    return counts;
}

} // namespace rawduck
