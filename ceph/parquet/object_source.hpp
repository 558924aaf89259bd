//! The object that a request is about: read by cls_cxx_read in the OSD, from memory in the helper.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace rawduck_ceph {

//! Object classes cannot read in this pool. Thrown by ObjectSource::Read.
class CannotReadHere : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

class ObjectSource {
  public:
    virtual ~ObjectSource() = default;
    //! Bytes.
    virtual uint64_t Size() const = 0;
    //! Reads exactly `length` bytes at `offset`. Throws std::runtime_error, also CannotReadHere. Called only
    //! on the thread that created this object, which cls_cxx_read requires.
    virtual void Read(uint64_t offset, size_t length, char *buffer) = 0;
    //! The checksum that the writer recorded (ceph/parquet/footer_checksum.hpp). False: there is none.
    virtual bool RecordedFooterCrc(uint32_t &crc) = 0;
};

} // namespace rawduck_ceph
