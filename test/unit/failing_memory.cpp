#include "failing_memory.hpp"

#include <cstdlib>
#include <new>

namespace {

constexpr int64_t NEVER = INT64_MAX, FAILED = -1;
thread_local int64_t allocations_left = NEVER;

void *Allocate(size_t bytes, size_t alignment) {
    if (allocations_left == 0) {
        allocations_left = FAILED;
        throw std::bad_alloc();
    }
    if (allocations_left != NEVER && allocations_left != FAILED) {
        allocations_left--;
    }
    void *const memory = alignment == 0
                             ? std::malloc(bytes == 0 ? 1 : bytes)
                             : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (!memory) {
        throw std::bad_alloc();
    }
    return memory;
}

} // namespace

void *operator new(size_t bytes) {
    return Allocate(bytes, 0);
}
void *operator new(size_t bytes, std::align_val_t alignment) {
    return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void *memory) noexcept {
    std::free(memory);
}
void operator delete(void *memory, size_t) noexcept {
    std::free(memory);
}
void operator delete(void *memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void *memory, size_t, std::align_val_t) noexcept {
    std::free(memory);
}

namespace rawduck {

FailingMemory::FailingMemory(int64_t before) {
    allocations_left = before;
}

FailingMemory::~FailingMemory() {
    allocations_left = NEVER;
}

bool FailingMemory::HasFailed() const {
    return allocations_left == FAILED;
}

} // namespace rawduck
