//! An object whose last bytes are cached: the verification of the footer and DuckDB both need them.
#pragma once

#include "ceph/parquet/object_source.hpp"

#include <algorithm>
#include <string>

namespace rawduck_ceph {

class ObjectWithTail final : public ObjectSource {
  public:
    //! Most footers are shorter.
    static constexpr uint64_t TAIL_BYTES = 32 * 1024;

    explicit ObjectWithTail(ObjectSource &object) : object_(object) {}

    uint64_t Size() const override { return object_.Size(); }

    void Read(uint64_t offset, size_t length, char *buffer) override {
        const uint64_t start = Size() - std::min(Size(), TAIL_BYTES);
        if (offset < start || offset > Size() || length > Size() - offset) {
            ReadThrough(offset, length, buffer);
            return;
        }
        if (tail_.empty()) {
            std::string tail(Size() - start, '\0');
            ReadThrough(start, tail.size(), &tail[0]);
            tail_ = std::move(tail);
        }
        tail_.copy(buffer, length, offset - start);
    }

    bool RecordedFooterCrc(uint32_t &crc) override { return object_.RecordedFooterCrc(crc); }

    //! Bytes that were read in the object itself.
    uint64_t ReadBytes() const { return read_bytes_; }

  private:
    void ReadThrough(uint64_t offset, size_t length, char *buffer) {
        object_.Read(offset, length, buffer);
        read_bytes_ += length;
    }

    ObjectSource &object_;
    std::string tail_;
    uint64_t read_bytes_ = 0;
};

} // namespace rawduck_ceph
