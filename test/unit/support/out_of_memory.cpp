#include "support/out_of_memory.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace rawduck {

namespace {
//! Constant-initialised, so that allocations of any thread at any time may look at it.
thread_local int64_t allocations_left = -1;
} // namespace

bool OutOfMemoryAfter::Failed() const {
    return allocations_left == 0;
}
OutOfMemoryAfter::OutOfMemoryAfter(int64_t allocations) {
    allocations_left = allocations + 1;
}
OutOfMemoryAfter::~OutOfMemoryAfter() {
    allocations_left = -1;
}

MemoryAgain::MemoryAgain() : allocations_left_(allocations_left) {
    allocations_left = -1;
}
MemoryAgain::~MemoryAgain() {
    allocations_left = allocations_left_;
}

static void *Allocate(std::size_t size, std::size_t alignment) {
    if (allocations_left > 1) {
        allocations_left--;
    } else if (allocations_left == 1) {
        allocations_left = 0; // this one fails, those behind it do not
        throw std::bad_alloc();
    }
    void *memory = alignment <= alignof(std::max_align_t)
                       ? std::malloc(size == 0 ? 1 : size)
                       : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (!memory) {
        throw std::bad_alloc();
    }
    return memory;
}

} // namespace rawduck

// Of the whole test program.
void *operator new(std::size_t size) {
    return rawduck::Allocate(size, 1);
}
void *operator new[](std::size_t size) {
    return rawduck::Allocate(size, 1);
}
void *operator new(std::size_t size, std::align_val_t alignment) {
    return rawduck::Allocate(size, static_cast<std::size_t>(alignment));
}
void *operator new[](std::size_t size, std::align_val_t alignment) {
    return rawduck::Allocate(size, static_cast<std::size_t>(alignment));
}
// std::stable_sort asks so for memory that it can do without.
void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
    try {
        return rawduck::Allocate(size, 1);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}
void operator delete(void *memory, const std::nothrow_t &) noexcept {
    std::free(memory);
}
void operator delete(void *memory) noexcept {
    std::free(memory);
}
void operator delete[](void *memory) noexcept {
    std::free(memory);
}
void operator delete(void *memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void *memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete(void *memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete[](void *memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void *memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete[](void *memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}
