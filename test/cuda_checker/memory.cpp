#include "cuda_checker/memory.hpp"

#include "cuda_checker/violation.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace rawduck::gpu::checker {
namespace {

constexpr uint8_t UNWRITTEN = 0xa5, BEHIND = 0x5a;

size_t Pages(size_t bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
}

void *Map(size_t bytes, int protection) {
    void *mapped = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        Violation("the checker has no memory left");
    }
    return mapped;
}

std::string Address(const void *address) {
    char text[32];
    std::snprintf(text, sizeof(text), "%p", address);
    return text;
}

} // namespace

void Violation(const std::string &what) {
    std::fprintf(stderr, "cuda checker: %s\n", what.c_str());
    std::abort();
}

std::shared_ptr<Allocation> DeviceMemory::Reserve(size_t bytes) {
    auto allocation = std::make_shared<Allocation>();
    allocation->bytes = bytes;
    allocation->mapped = Pages(bytes) + Pages(1);
    allocation->data = static_cast<uint8_t *>(Map(allocation->mapped, PROT_NONE));
    live_[allocation->data] = allocation;
    return allocation;
}

void DeviceMemory::Protect(const Allocation &allocation, bool is_allowed) const {
    if (mprotect(allocation.data, Pages(allocation.bytes), is_allowed ? PROT_READ | PROT_WRITE : PROT_NONE) !=
        0) {
        Violation("mprotect failed");
    }
}

void DeviceMemory::Begin(Allocation &allocation) {
    allocation.is_usable = true;
    Protect(allocation, true);
    std::memset(allocation.data, UNWRITTEN, allocation.bytes);
    std::memset(allocation.data + allocation.bytes, BEHIND, Pages(allocation.bytes) - allocation.bytes);
}

std::shared_ptr<Allocation> DeviceMemory::MarkReleased(const uint8_t *data) {
    const auto found = live_.find(data);
    if (found == live_.end() || found->second->is_released) {
        Violation("cuMemFreeAsync of " + Describe(data));
    }
    found->second->is_released = true;
    return found->second;
}

void DeviceMemory::End(Allocation &allocation) {
    if (!allocation.is_usable) {
        Violation("memory is freed before its allocation in the order of streams");
    }
    for (size_t i = allocation.bytes; i < Pages(allocation.bytes); i++) {
        if (allocation.data[i] != BEHIND) {
            Violation("something was written " + std::to_string(i - allocation.bytes) +
                      " bytes behind the end of " + std::to_string(allocation.bytes) +
                      " bytes of device memory");
        }
    }
    allocation.is_usable = false;
    const uint8_t *data = allocation.data;
    // The addresses stay taken, so that late use is found; the memory is given back.
    if (mmap(allocation.data, allocation.mapped, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
        Violation("mmap failed");
    }
    past_[data] = allocation.mapped;
    constexpr size_t PAST_MOST = 4096;
    if (past_.size() > PAST_MOST) {
        const auto oldest = past_.begin();
        munmap(const_cast<uint8_t *>(oldest->first), oldest->second);
        past_.erase(oldest);
    }
    live_.erase(data);
}

void DeviceMemory::Open() {
    is_open_ = true;
    for (const auto &[data, allocation] : live_) {
        if (allocation->is_usable) {
            Protect(*allocation, true);
        }
    }
}

void DeviceMemory::Close() {
    is_open_ = false;
    for (const auto &[data, allocation] : live_) {
        if (allocation->is_usable) {
            Protect(*allocation, false);
        }
    }
}

void DeviceMemory::RequireUsable(const void *data, size_t bytes, const std::string &what) const {
    const auto *first = static_cast<const uint8_t *>(data);
    auto found = live_.upper_bound(first);
    if (found != live_.begin()) {
        const Allocation &allocation = *std::prev(found)->second;
        if (allocation.is_usable && first + bytes <= allocation.data + allocation.bytes) {
            return;
        }
    }
    Violation(what + " touches " + std::to_string(bytes) + " bytes at " + Describe(data));
}

bool DeviceMemory::IsReserved(const void *data) const {
    const auto *byte = static_cast<const uint8_t *>(data);
    const auto found = live_.upper_bound(byte);
    return found != live_.begin() && byte < std::prev(found)->first + std::prev(found)->second->bytes;
}

std::string DeviceMemory::Describe(const void *address) const {
    const auto *data = static_cast<const uint8_t *>(address);
    const auto live = live_.upper_bound(data);
    if (live != live_.begin() && data < std::prev(live)->first + std::prev(live)->second->mapped) {
        const Allocation &allocation = *std::prev(live)->second;
        const char *state = allocation.is_usable     ? ""
                            : allocation.is_released ? " already freed"
                                                     : " not yet allocated in the order of streams";
        return Address(address) + ", byte " + std::to_string(data - allocation.data) + " of " +
               std::to_string(allocation.bytes) + " bytes of device memory" + state;
    }
    const auto past = past_.upper_bound(data);
    if (past != past_.begin() && data < std::prev(past)->first + std::prev(past)->second) {
        return Address(address) + ", device memory that has been freed";
    }
    return Address(address) + ", no device memory";
}

void *PinnedMemory::Allocate(size_t bytes) {
    void *data = Map(Pages(bytes), PROT_READ | PROT_WRITE);
    Add(data, bytes);
    return data;
}

void PinnedMemory::Add(void *data, size_t bytes) {
    const auto *begin = static_cast<const uint8_t *>(data);
    const auto next = live_.lower_bound(begin);
    if ((next != live_.end() && next->first < begin + bytes) ||
        (next != live_.begin() && std::prev(next)->first + std::prev(next)->second > begin)) {
        Violation("host memory is pinned twice");
    }
    live_[begin] = bytes;
    bytes_ += bytes;
}

size_t PinnedMemory::Forget(void *data, const char *call) {
    const auto found = live_.find(static_cast<uint8_t *>(data));
    if (found == live_.end()) {
        Violation(std::string(call) + " of memory that is not pinned");
    }
    const size_t bytes = found->second;
    bytes_ -= bytes;
    live_.erase(found);
    return bytes;
}

void PinnedMemory::Free(void *data) {
    munmap(data, Pages(Forget(data, "cuMemFreeHost")));
}

void PinnedMemory::Remove(void *data) {
    Forget(data, "cuMemHostUnregister");
}

void PinnedMemory::RequireInside(const void *data, size_t bytes, const std::string &what) const {
    const auto *first = static_cast<const uint8_t *>(data);
    const auto found = live_.upper_bound(first);
    if (found == live_.begin() || first + bytes > std::prev(found)->first + std::prev(found)->second) {
        Violation(what + " uses host memory that is not pinned, or not by one call");
    }
}

} // namespace rawduck::gpu::checker
