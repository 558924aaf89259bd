//! The bytes of a simulated device, zeros until written. Copies are cheap: they share what neither of them
//! has written since, so that thousands of power cuts of one workload cost little memory and time.
#pragma once

#include "common/units.hpp"

#include <memory>
#include <string>
#include <vector>

namespace rawduck {

//! Not thread-safe. Ranges must lie within the capacity.
class SparseImage {
  public:
    explicit SparseImage(uint64_t capacity_bytes)
        : capacity_bytes_(capacity_bytes), chunks_((capacity_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES) {}

    uint64_t Capacity() const { return capacity_bytes_; }
    void Read(uint64_t offset, char *data, uint64_t length) const;
    void Write(uint64_t offset, const char *data, uint64_t length);
    //! What is gained is zeros, and what lay behind the new end is gone.
    void Resize(uint64_t capacity_bytes) {
        capacity_bytes_ = capacity_bytes;
        chunks_.resize((capacity_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES);
    }

  private:
    static constexpr uint64_t CHUNK_BYTES = 64 * KIB;

    //! The chunk, for this image alone.
    std::string &OwnChunk(uint64_t index);

    uint64_t capacity_bytes_;
    std::vector<std::shared_ptr<std::string>> chunks_; //!< null: zeros
};

} // namespace rawduck
