#include "io/queue/bounce_pool.hpp"

#include "common/invariant.hpp"
#include "common/units.hpp"

#include <algorithm>
#include <new>

namespace rawduck {

char *BounceMemory::Take(uint64_t chunk_bytes, bool beyond_limit) {
    std::lock_guard<std::mutex> guard(mutex_);
    return IsAwaited() ? nullptr : TakeLocked(chunk_bytes, beyond_limit);
}

//! Whoever waits has none himself, so those who have some come to their end. One after the other: who has just given some
//! back would be the first to take them again.
char *BounceMemory::Await(uint64_t chunk_bytes) {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t ticket = tickets_++;
    awaiting_++;
    given_back_.wait(lock, [&] { return ticket == served_; });
    char *chunk = TakeLocked(chunk_bytes, true);
    while (!chunk && IsScarce() && charged_ + beyond_limit_ > 0) {
        given_back_.wait(lock);
        chunk = TakeLocked(chunk_bytes, true);
    }
    awaiting_--;
    served_++;
    given_back_.notify_all();
    return chunk;
}

// Runs while commands are in flight, where an exception could not be let through.
char *BounceMemory::TakeLocked(uint64_t chunk_bytes, bool beyond_limit) {
    if (!beyond_limit && charged_ + chunk_bytes > bytes_) {
        return nullptr;
    }
    char *chunk = nullptr;
    if (IsShared(chunk_bytes)) {
        chunk = shared_.Take(chunk_bytes);
    } else if (!idle_.empty() || AddSlab(chunk_bytes)) {
        chunk = idle_.back();
        idle_.pop_back();
    }
    if (!chunk) {
        return nullptr;
    }
    (beyond_limit ? beyond_limit_ : charged_) += chunk_bytes;
    return chunk;
}

bool BounceMemory::IsShared(uint64_t chunk_bytes) const {
    return chunk_bytes <= SLAB_BYTES && (!device_ || !device_->Caps().registered_memory);
}

bool BounceMemory::AddSlab(uint64_t chunk_bytes) {
    try {
        const uint64_t slab_bytes = std::max(SLAB_BYTES, chunk_bytes);
        const uint64_t chunks = slab_bytes / chunk_bytes;
        idle_.reserve((slabs_.size() + 1) * chunks);
        slabs_.emplace_back(slab_bytes);
        if (device_ && !device_->Register(slabs_.back().Data(), slab_bytes, MemoryNeed::COPIES)) {
            slabs_.pop_back();
            return false;
        }
        for (uint64_t i = chunks; i > 0; i--) {
            idle_.push_back(slabs_.back().Data() + (i - 1) * chunk_bytes);
        }
        return true;
    } catch (const std::bad_alloc &) {
        return false;
    }
}

void BounceMemory::Give(char *chunk, uint64_t chunk_bytes, bool beyond_limit) {
    std::lock_guard<std::mutex> guard(mutex_);
    uint64_t &taken = beyond_limit ? beyond_limit_ : charged_;
    RAWDUCK_INVARIANT(taken >= chunk_bytes, "a chunk that is given back was taken");
    taken -= chunk_bytes;
    if (IsShared(chunk_bytes)) {
        shared_.Give(chunk);
        return;
    }
    RAWDUCK_INVARIANT(idle_.size() < idle_.capacity(), "a chunk that is given back has its place");
    idle_.push_back(chunk);
    if (IsScarce() && pools_ > 0) {
        given_back_.notify_all();
    } else {
        DropUnused();
    }
}

void BounceMemory::Join() {
    std::lock_guard<std::mutex> guard(mutex_);
    pools_++;
}

void BounceMemory::Leave() {
    std::lock_guard<std::mutex> guard(mutex_);
    RAWDUCK_INVARIANT(pools_ > 0, "a pool that leaves has joined");
    if (--pools_ == 0) {
        DropUnused();
    }
}

//! The mutex is held.
void BounceMemory::DropUnused() {
    if (beyond_limit_ + charged_ > 0) {
        return;
    }
    idle_.clear();
    for (const StableHugeMemory &slab : slabs_) {
        if (device_) {
            device_->Forget(slab.Data());
        }
    }
    slabs_.clear();
}

uint64_t BounceMemory::Held() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return slabs_.empty() ? charged_ + beyond_limit_ : slabs_.size() * SLAB_BYTES;
}

BouncePool::BouncePool(uint64_t chunk_bytes, uint32_t memory_alignment, uint32_t max_chunks,
                       BounceMemory &memory)
    : chunk_bytes_(chunk_bytes),
      taken_bytes_(AlignUp(chunk_bytes, std::max<uint64_t>(memory_alignment, PAGE_BYTES))),
      max_chunks_(max_chunks), memory_(memory) {
    // Acquire and Release run while commands are in flight, where an exception could not be let through.
    chunks_.reserve(max_chunks_);
    idle_.reserve(max_chunks_);
    memory_.Join();
}

BouncePool::~BouncePool() {
    RAWDUCK_INVARIANT(idle_.size() == chunks_.size(), "nothing is in flight when a queue is destroyed");
    GiveBackIdle();
    memory_.Leave();
}

char *BouncePool::Acquire() {
    if (!idle_.empty()) {
        char *chunk = idle_.back();
        idle_.pop_back();
        return chunk;
    }
    if (chunks_.size() >= max_chunks_) {
        return nullptr;
    }
    return Add(memory_.Take(taken_bytes_, chunks_.empty()));
}

char *BouncePool::AcquireOrWait() {
    char *const chunk = Acquire();
    return chunk || !chunks_.empty() ? chunk : Add(memory_.Await(taken_bytes_));
}

char *BouncePool::Add(char *chunk) {
    if (chunk) {
        RAWDUCK_INVARIANT(IsAligned(reinterpret_cast<uintptr_t>(chunk), PAGE_BYTES),
                          "a chunk is aligned for every device");
        chunks_.push_back(chunk);
    }
    return chunk;
}

void BouncePool::Release(char *chunk) {
    RAWDUCK_INVARIANT(idle_.size() < chunks_.size(), "a chunk is released once");
    RAWDUCK_SLOW_INVARIANT(std::count(chunks_.begin(), chunks_.end(), chunk) == 1 &&
                               std::count(idle_.begin(), idle_.end(), chunk) == 0,
                           "a chunk goes back to the pool that it is of, and once");
    idle_.push_back(chunk);
    if (memory_.IsAwaited()) {
        GiveBackIdle();
    }
}

void BouncePool::Rest() {
    if (memory_.IsScarce()) {
        GiveBackIdle();
    }
}

void BouncePool::GiveBackIdle() {
    for (char *const chunk : idle_) {
        memory_.Give(chunk, taken_bytes_, chunks_.size() == 1);
        chunks_.erase(std::find(chunks_.begin(), chunks_.end(), chunk));
    }
    idle_.clear();
}

} // namespace rawduck
