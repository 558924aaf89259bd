#include "io/device/simulated/sparse_image.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace rawduck {

void SparseImage::Read(uint64_t offset, char *data, uint64_t length) const {
    while (length > 0) {
        const uint64_t within = offset % CHUNK_BYTES;
        const uint64_t piece = std::min(CHUNK_BYTES - within, length);
        if (const auto &chunk = chunks_[offset / CHUNK_BYTES]) {
            std::memcpy(data, chunk->data() + within, piece);
        } else {
            std::memset(data, 0, piece);
        }
        offset += piece;
        data += piece;
        length -= piece;
    }
}

void SparseImage::Write(uint64_t offset, const char *data, uint64_t length) {
    while (length > 0) {
        const uint64_t within = offset % CHUNK_BYTES;
        const uint64_t piece = std::min(CHUNK_BYTES - within, length);
        std::memcpy(&OwnChunk(offset / CHUNK_BYTES)[within], data, piece);
        offset += piece;
        data += piece;
        length -= piece;
    }
}

std::string &SparseImage::OwnChunk(uint64_t index) {
    std::shared_ptr<std::string> &chunk = chunks_[index];
    if (!chunk) {
        chunk = std::make_shared<std::string>(CHUNK_BYTES, '\0');
    } else if (chunk.use_count() > 1) {
        chunk = std::make_shared<std::string>(*chunk);
    } else {
        // Another thread's copy, which shared it until now, has finished reading it before it released it.
        std::atomic_thread_fence(std::memory_order_acquire);
    }
    return *chunk;
}

} // namespace rawduck
