#include "common/memory/buffers/staging_arena.hpp"

#include "common/invariant.hpp"

#include <algorithm>
#include <utility>

namespace rawduck {

//! The units of the chunk that are among those from `begin` until before `end`.
uint8_t StagingArena::MaskOf(uint64_t chunk, uint64_t begin, uint64_t end) {
    const uint64_t start = chunk * UNITS_PER_CHUNK;
    const uint64_t first = std::clamp(begin, start, start + UNITS_PER_CHUNK) - start;
    const uint64_t behind = std::clamp(end, start, start + UNITS_PER_CHUNK) - start;
    return static_cast<uint8_t>((1U << behind) - (1U << first));
}

uint64_t StagingArena::FindFree(uint64_t count) const {
    uint64_t run = 0;
    for (uint64_t unit = 0; unit < UNITS; unit++) {
        run = used_.Has(unit) ? 0 : run + 1;
        if (run == count) {
            return unit + 1 - count;
        }
    }
    return UNITS;
}

char *StagingArena::Allocate(uint64_t bytes) {
    RAWDUCK_INVARIANT(bytes > 0 && bytes % UNIT_BYTES == 0 && bytes <= LENGTH_MAX,
                      "runs of blocks are allocated here");
    const uint64_t count = bytes / UNIT_BYTES;
    Units to_back, spare;
    bool has_spare = false;
    uint64_t begin;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        begin = FindFree(count);
        if (begin == UNITS) {
            return nullptr;
        }
        lengths_[begin] = static_cast<uint16_t>(count);
        for (uint64_t chunk = begin / UNITS_PER_CHUNK; chunk <= (begin + count - 1) / UNITS_PER_CHUNK;
             chunk++) {
            const uint8_t units = MaskOf(chunk, begin, begin + count);
            to_back.masks[chunk] = backed_.masks[chunk] == 0
                                       ? PageBacking::ALL_PARTS
                                       : static_cast<uint8_t>(units & ~backed_.masks[chunk]);
            backed_.Add(chunk, to_back.masks[chunk]);
            // What gets pages besides is in use until it has them: nobody else takes it or gives it back before.
            spare.masks[chunk] = static_cast<uint8_t>(to_back.masks[chunk] & ~units);
            used_.Add(chunk, static_cast<uint8_t>(units | spare.masks[chunk]));
            touched_.Add(chunk, static_cast<uint8_t>(units | spare.masks[chunk]));
            has_spare = has_spare || spare.masks[chunk] != 0;
        }
    }
    Back(to_back);
    if (has_spare) {
        std::lock_guard<std::mutex> lock(mutex_);
        for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
            used_.Remove(chunk, spare.masks[chunk]);
        }
    }
    return memory_ + begin * UNIT_BYTES;
}

void StagingArena::Back(const Units &to_back) {
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
        char *const memory = ChunkMemory(chunk);
        if (to_back.masks[chunk] == PageBacking::ALL_PARTS) {
            const bool huge = backing_.Back(memory);
            if (IsListed(chunk)) {
                StableMemory::Add(memory, PageBacking::CHUNK_BYTES,
                                  huge ? HugeMemory::Pages::HUGE : HugeMemory::Pages::AS_ADVISED_LATER);
            }
        } else if (to_back.masks[chunk] != 0) {
            PageBacking::PopulateParts(memory, to_back.masks[chunk]);
        }
    }
}

void StagingArena::Free(char *memory) noexcept {
    const auto offset = static_cast<uint64_t>(memory - memory_);
    const uint64_t begin = offset / UNIT_BYTES;
    Units going;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        RAWDUCK_INVARIANT(offset % UNIT_BYTES == 0 && begin < UNITS && lengths_[begin] > 0,
                          "what is freed was allocated here, and is freed once");
        const uint64_t end = begin + std::exchange(lengths_[begin], uint16_t{0});
        for (uint64_t chunk = begin / UNITS_PER_CHUNK; chunk * UNITS_PER_CHUNK < end; chunk++) {
            used_.Remove(chunk, MaskOf(chunk, begin, end));
        }
        // What is at the end is needed least.
        const uint64_t kept_max = std::max<uint64_t>(KEPT_MAX, kept_allowed_);
        uint64_t kept_bytes = 0;
        for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
            kept_bytes += PageBacking::CountParts(Kept(chunk)) * UNIT_BYTES;
            if (kept_bytes > kept_max) {
                going.masks[chunk] = MayGo(chunk);
                used_.Add(chunk, going.masks[chunk]);
                going_.Add(chunk, going.masks[chunk]);
            }
        }
    }
    GiveBack(going);
}

//! Nobody can take it meanwhile. Not under the lock: rings that know the memory are told.
void StagingArena::GiveBack(const Units &going) {
    bool any = false;
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
        if (going.masks[chunk] != 0) {
            any = true;
            if (IsListed(chunk)) {
                StableMemory::Remove(ChunkMemory(chunk));
            }
            PageBacking::ReleaseParts(ChunkMemory(chunk), going.masks[chunk]);
        }
    }
    if (any) {
        std::lock_guard<std::mutex> lock(mutex_);
        for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
            backed_.Remove(chunk, going.masks[chunk]);
            used_.Remove(chunk, going.masks[chunk]);
            going_.Remove(chunk, going.masks[chunk]);
        }
    }
}

void StagingArena::GiveBackUnused() noexcept {
    Units going;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
            const uint8_t touched = std::exchange(touched_.masks[chunk], used_.masks[chunk]);
            // One that is free goes as a whole, so that it may get a huge page again.
            const bool stays = used_.masks[chunk] == 0 && touched != 0;
            going.masks[chunk] = stays ? 0 : static_cast<uint8_t>(MayGo(chunk) & ~touched);
            used_.Add(chunk, going.masks[chunk]);
            going_.Add(chunk, going.masks[chunk]);
        }
    }
    GiveBack(going);
}

//! Also what a thread was giving back that is not here.
void StagingArena::DropKeptInChild() noexcept {
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
        const uint8_t going = going_.masks[chunk];
        used_.Remove(chunk, going);
        going_.Remove(chunk, going);
        const uint8_t dropped = IsListed(chunk) ? going : Kept(chunk);
        if (dropped != 0) {
            PageBacking::ReleaseInChild(ChunkMemory(chunk), dropped);
            backed_.Remove(chunk, dropped);
        }
    }
}

bool StagingArena::HasMoreToGiveBack() const {
    std::lock_guard<std::mutex> lock(mutex_);
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
        if (MayGo(chunk) != 0) {
            return true;
        }
    }
    return false;
}

StagingArena::Counts StagingArena::Count() const {
    std::lock_guard<std::mutex> lock(mutex_);
    Counts counts;
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
        counts.used_bytes += PageBacking::CountParts(used_.masks[chunk]) * UNIT_BYTES;
        counts.kept_bytes += PageBacking::CountParts(Kept(chunk)) * UNIT_BYTES;
    }
    return counts;
}

} // namespace rawduck
