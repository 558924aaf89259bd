#include "common/memory/buffers/block_arena.hpp"

#include "common/invariant.hpp"

#include <algorithm>

namespace rawduck {

namespace {

//! The lowest bit alone.
uint8_t Lowest(uint8_t mask) {
    return static_cast<uint8_t>(mask & -mask);
}

uint64_t IndexOf(uint8_t bit) {
    return static_cast<uint64_t>(__builtin_ctz(bit));
}

} // namespace

BlockArena::BlockArena(char *memory, uint64_t bytes, PageBacking &backing)
    : memory_(memory), chunk_count_(static_cast<ChunkId>(bytes / PageBacking::CHUNK_BYTES)),
      backing_(backing) {
    RAWDUCK_INVARIANT(bytes / PageBacking::CHUNK_BYTES < NONE, "chunks have numbers of 32 bits");
}

uint64_t BlockArena::KeptMax() const {
    const uint64_t kept =
        std::min(std::max(used_ / KEPT_SHARE, KEPT_MIN / BLOCK_BYTES), KEPT_MAX / BLOCK_BYTES);
    return std::max<uint64_t>(kept, kept_allowed_);
}

void BlockArena::Remove(ChunkId id) {
    Chunk &chunk = chunks_[id];
    List &list = ListOf(chunk);
    (chunk.previous == NONE ? list.first : chunks_[chunk.previous].next) = chunk.next;
    (chunk.next == NONE ? list.last : chunks_[chunk.next].previous) = chunk.previous;
    chunk.previous = chunk.next = NONE;
}

void BlockArena::PushFront(ChunkId id) {
    Chunk &chunk = chunks_[id];
    List &list = ListOf(chunk);
    chunk.next = list.first;
    (list.first == NONE ? list.last : chunks_[list.first].previous) = id;
    list.first = id;
}

//! Of one with a free block, which is in no list any more. The caller holds the lock.
BlockArena::ChunkId BlockArena::TakeChunk() {
    for (const List *list : {&partial_, &empty_, &bare_, &unbacked_}) {
        if (list->first != NONE) {
            const ChunkId id = list->first;
            Remove(id);
            return id;
        }
    }
    if (chunks_.size() == chunk_count_) {
        return NONE;
    }
    chunks_.emplace_back();
    chunks_.back().free = ALL;
    chunks_.back().released = ALL;
    return static_cast<ChunkId>(chunks_.size() - 1);
}

char *BlockArena::Allocate() {
    ChunkId id;
    uint8_t block = 0;
    bool back_block = false;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        id = TakeChunk();
        if (id == NONE) {
            return nullptr;
        }
        Chunk &chunk = chunks_[id];
        if (chunk.released == ALL) {
            // All of it is in use until it has pages. What another thread gave back meanwhile would get some.
            chunk.free = chunk.released = 0;
            used_ += BLOCKS_PER_CHUNK;
        } else {
            block = Lowest(chunk.Kept() != 0 ? chunk.Kept() : chunk.free);
            back_block = (chunk.released & block) != 0;
            kept_ -= back_block ? 0 : 1;
            kept_least_ = std::min(kept_least_, kept_);
            chunk.free &= static_cast<uint8_t>(~block);
            chunk.released &= static_cast<uint8_t>(~block);
            used_++;
            if (chunk.free != 0) {
                PushFront(id);
            }
        }
    }
    if (block == 0) {
        return BackChunk(id);
    }
    if (back_block) {
        PageBacking::PopulateParts(ChunkMemory(id), block);
    }
    return ChunkMemory(id) + IndexOf(block) * BLOCK_BYTES;
}

//! Puts pages under a chunk all of which is in use. Returns its first block, the others are free.
char *BlockArena::BackChunk(ChunkId id) {
    backing_.Back(ChunkMemory(id));
    std::lock_guard<std::mutex> lock(mutex_);
    chunks_[id].free = static_cast<uint8_t>(ALL & ~1U);
    used_ -= BLOCKS_PER_CHUNK - 1;
    kept_ += BLOCKS_PER_CHUNK - 1;
    PushFront(id);
    return ChunkMemory(id);
}

void BlockArena::Free(char *block) noexcept {
    const auto offset = static_cast<uint64_t>(block - memory_);
    RAWDUCK_INVARIANT(offset % BLOCK_BYTES == 0, "what is freed was allocated here");
    const auto id = static_cast<ChunkId>(offset / PageBacking::CHUNK_BYTES);
    const auto bit = static_cast<uint8_t>(1U << (offset % PageBacking::CHUNK_BYTES / BLOCK_BYTES));
    Taken taken;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        RAWDUCK_INVARIANT(id < chunks_.size() && (chunks_[id].free & bit) == 0, "a block is freed once");
        if (chunks_[id].free != 0) {
            Remove(id);
        }
        chunks_[id].free |= bit;
        PushFront(id);
        used_--;
        kept_++;
        const uint64_t kept_max = KeptMax(); // another thread may change it
        if (kept_ <= kept_max) {
            return;
        }
        // More than one block at a time, so that not each one takes a system call.
        TakeKept(kept_ - kept_max / 2, taken);
    }
    Release(taken);
}

//! The caller holds the lock. What is taken counts as used until it is released. Returns how many blocks it is: fewer
//! where `taken` has no room for more chunks.
uint64_t BlockArena::TakeKept(uint64_t blocks, Taken &taken) {
    uint64_t count = 0;
    while (count < blocks && taken.count < taken.parts.size() &&
           (empty_.last != NONE || partial_.last != NONE)) {
        const ChunkId id = empty_.last != NONE ? empty_.last : partial_.last;
        Chunk &chunk = chunks_[id];
        const uint8_t kept = chunk.Kept();
        // A chunk of which a part was given back is given back as a whole: it may get a huge page again.
        const uint8_t take = chunk.free == ALL ? ALL : kept;
        Remove(id);
        count += PageBacking::CountParts(kept);
        kept_ -= PageBacking::CountParts(kept);
        used_ += PageBacking::CountParts(take);
        chunk.free &= static_cast<uint8_t>(~take);
        chunk.released &= static_cast<uint8_t>(~take);
        chunk.going |= take;
        if (chunk.free != 0) {
            PushFront(id);
        }
        taken.parts[taken.count++] = {id, take};
    }
    kept_least_ = std::min(kept_least_, kept_);
    return count;
}

void BlockArena::Release(const Taken &taken) {
    for (size_t i = 0; i < taken.count; i++) {
        PageBacking::ReleaseParts(ChunkMemory(taken.parts[i].chunk), taken.parts[i].blocks);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < taken.count; i++) {
        const auto [id, blocks] = taken.parts[i];
        Chunk &chunk = chunks_[id];
        if (chunk.free != 0) {
            Remove(id);
        }
        used_ -= PageBacking::CountParts(blocks);
        chunk.going &= static_cast<uint8_t>(~blocks);
        chunk.free |= blocks;
        chunk.released |= blocks;
        PushFront(id);
    }
}

void BlockArena::GiveBackUnused() noexcept {
    uint64_t left = UINT64_MAX;
    while (left > 0) {
        Taken taken;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            left = std::min(left, kept_least_);
            left -= std::min(left, TakeKept(left, taken));
            kept_least_ = left > 0 ? kept_least_ : kept_;
        }
        Release(taken);
    }
}

//! Also what a thread was giving back that is not here.
void BlockArena::DropKeptInChild() noexcept {
    for (ChunkId id = 0; id < chunks_.size(); id++) {
        Chunk &chunk = chunks_[id];
        const auto dropped = static_cast<uint8_t>(chunk.Kept() | chunk.going);
        if (dropped == 0) {
            continue;
        }
        if (chunk.free != 0) {
            Remove(id);
        }
        PageBacking::ReleaseInChild(ChunkMemory(id), dropped);
        used_ -= PageBacking::CountParts(chunk.going);
        chunk.free |= chunk.going;
        chunk.released |= dropped;
        chunk.going = 0;
        PushFront(id);
    }
    kept_ = kept_least_ = 0;
}

BlockArena::Counts BlockArena::Count() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return {used_ * BLOCK_BYTES, kept_ * BLOCK_BYTES};
}

} // namespace rawduck
