#include "io/bounce_pool.hpp"

#include "common/units.hpp"

#include <algorithm>

namespace rawduck {

bool BounceBudget::Take(uint64_t bytes) {
    if (left_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed) >=
        static_cast<int64_t>(bytes)) {
        return true;
    }
    Return(bytes);
    return false;
}

void BounceBudget::Return(uint64_t bytes) {
    left_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

uint64_t BounceBudget::Held() const {
    // Below zero while somebody is being refused.
    const int64_t left = std::max<int64_t>(left_.load(std::memory_order_relaxed), 0);
    return bytes_ - static_cast<uint64_t>(left) + on_top_.load(std::memory_order_relaxed);
}

BouncePool::BouncePool(uint64_t chunk_bytes, uint32_t memory_alignment, uint32_t max_chunks,
                       BounceBudget &budget)
    : chunk_bytes_(chunk_bytes), alignment_(std::max<uint64_t>(memory_alignment, 4096)),
      max_chunks_(max_chunks), budget_(budget) {
    // Acquire and Release run while commands are in flight, where an exception could not be let through.
    chunks_.reserve(max_chunks_);
    idle_.reserve(max_chunks_);
}

BouncePool::~BouncePool() {
    budget_.Return(charged_);
    budget_.ReturnOnTop(chunks_.empty() ? 0 : chunk_bytes_);
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
    const bool charge = !chunks_.empty();
    if (charge && !budget_.Take(chunk_bytes_)) {
        return nullptr;
    }
    auto *chunk = static_cast<char *>(std::aligned_alloc(alignment_, AlignUp(chunk_bytes_, alignment_)));
    if (!chunk) {
        budget_.Return(charge ? chunk_bytes_ : 0);
        return nullptr;
    }
    if (charge) {
        charged_ += chunk_bytes_;
    } else {
        budget_.TakeOnTop(chunk_bytes_);
    }
    chunks_.emplace_back(chunk);
    return chunk;
}

void BouncePool::Release(char *chunk) {
    idle_.push_back(chunk);
}

} // namespace rawduck
