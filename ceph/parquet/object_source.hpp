//! One object, as the code below the object class reads it.
//! Below an OSD that is cls_cxx_read; tests have one in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace rawduck_ceph {

//! No class can read here, whatever the object. Thrown by ObjectSource::Read.
class CannotReadHere : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

class ObjectSource {
  public:
    virtual ~ObjectSource() = default;
    //! In bytes.
    virtual uint64_t Size() const = 0;
    //! Exactly `length` bytes from `offset`, or throws std::runtime_error, perhaps CannotReadHere. Only
    //! called on the thread that made this object: cls_cxx_read belongs to the operation's own thread.
    virtual void Read(uint64_t offset, size_t length, char *buffer) = 0;
    //! What the writer recorded, if it did (ceph/parquet/footer_checksum.hpp).
    virtual bool RecordedFooterCrc(uint32_t &crc) = 0;
};

} // namespace rawduck_ceph
