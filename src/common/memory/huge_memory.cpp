#include "common/memory/huge_memory.hpp"

#include <new>
#include <sys/mman.h>

namespace rawduck {

HugeMemory::HugeMemory(uint64_t bytes, Pages pages) : memory_(nullptr, Unmap{bytes}) {
    const uint64_t mapped_bytes = bytes + HUGE_PAGE_BYTES;
    void *mapped = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        throw std::bad_alloc();
    }
    char *const begin = static_cast<char *>(mapped);
    char *const data = begin + (AlignUp(reinterpret_cast<uint64_t>(begin), HUGE_PAGE_BYTES) -
                                reinterpret_cast<uint64_t>(begin));
    const auto before = static_cast<uint64_t>(data - begin);
    const uint64_t after = mapped_bytes - before - AlignUp(bytes, PAGE_BYTES);
    if (before > 0) {
        munmap(begin, before);
    }
    if (after > 0) {
        munmap(data + AlignUp(bytes, PAGE_BYTES), after);
    }
    memory_.reset(data);
    if (pages == Pages::HUGE) {
        // A kernel without huge pages refuses, and small pages work too.
        madvise(data, bytes, MADV_HUGEPAGE);
    }
}

void HugeMemory::Unmap::operator()(char *memory) const {
    munmap(memory, bytes);
}

} // namespace rawduck
