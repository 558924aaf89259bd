//! Copies from pinned memory to the device, which must stay as it is until they are done.
#pragma once

#include "cuda_checker/memory.hpp"
#include "cuda_checker/violation.hpp"
#include "gpu/columns/pull.hpp"
#include "gpu/kernels/host_kernels.hpp"

#include <cstring>
#include <vector>

namespace rawduck::gpu::checker {

inline uint64_t SumOf(const uint8_t *data, size_t bytes) {
    uint64_t sum = bytes, word = 0;
    for (size_t i = 0; i + sizeof(word) <= bytes; i += sizeof(word)) {
        std::memcpy(&word, data + i, sizeof(word));
        sum = (sum ^ word) * 0x100000001b3ull;
    }
    for (size_t i = bytes / sizeof(word) * sizeof(word); i < bytes; i++) {
        sum = (sum ^ data[i]) * 0x100000001b3ull;
    }
    return sum;
}

//! Copies from pinned memory: what is said when they are called is checked again when they are done.
class PinnedCopies {
  public:
    void Add(const PinnedMemory &pinned, const void *from, const uint8_t *to, size_t bytes, const char *by) {
        pinned.RequireInside(from, bytes, by);
        copies_.push_back({static_cast<const uint8_t *>(from), to, bytes,
                           SumOf(static_cast<const uint8_t *>(from), bytes)});
    }

    void Require(const DeviceMemory &memory, const PinnedMemory &pinned, const char *by) const {
        for (const Copy &copy : copies_) {
            pinned.RequireInside(copy.from, copy.bytes, by);
            if (SumOf(copy.from, copy.bytes) != copy.sum) {
                Violation("pinned memory was changed before what was copied from it had been");
            }
            memory.RequireUsable(copy.to, copy.bytes, by);
        }
    }

    void Run() const {
        for (const Copy &copy : copies_) {
            std::memcpy(const_cast<uint8_t *>(copy.to), copy.from, copy.bytes);
        }
    }

  private:
    struct Copy {
        const uint8_t *from, *to;
        size_t bytes;
        uint64_t sum;
    };
    std::vector<Copy> copies_;
};

//! Of the one kernel that reads host memory.
inline PinnedCopies PulledBy(const DeviceMemory &memory, const PinnedMemory &pinned, const HostKernel &kernel,
                             const void *arguments) {
    PinnedCopies copies;
    if (std::strcmp(kernel.name, "pull_pieces") == 0) {
        const auto &pulled = *static_cast<const PullArguments *>(arguments);
        for (u32 i = 0; i < pulled.count; i++) {
            const PullPiece &piece = pulled.pieces[i];
            if (memory.IsReserved(piece.from)) {
                continue; // from the device to itself: pages that cannot be used yet, or no longer, end the process
            }
            copies.Add(pinned, piece.from, piece.to, piece.bytes, kernel.name);
        }
    }
    return copies;
}

} // namespace rawduck::gpu::checker
