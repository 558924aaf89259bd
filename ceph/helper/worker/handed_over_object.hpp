//! The parts of an object that the object class has handed over, as if they were the object.
#pragma once

#include "ceph/channel/packets.hpp"
#include "ceph/parquet/object_source.hpp"

#include <memory>
#include <vector>

namespace rawduck_ceph {

class HandedOverObject final : public ObjectSource {
  public:
    //! Throws std::runtime_error when the files are not as the packet says.
    HandedOverObject(const JobPacket &job, std::vector<OwnedFd> files);

    uint64_t Size() const override { return job_.object_bytes; }
    //! Throws std::runtime_error for bytes that were not handed over: the client then reads the object.
    void Read(uint64_t offset, size_t length, char *buffer) override;
    bool RecordedFooterCrc(uint32_t &crc) override {
        crc = job_.footer_crc;
        return job_.has_footer_crc != 0;
    }

    const char *Request() const { return files_[0]->Data(); }

  private:
    struct Part {
        uint64_t offset, bytes;
        const char *data;
    };

    void AddParts(const MappedFile &file, uint32_t range_count);

    const JobPacket job_;
    std::vector<std::unique_ptr<MappedFile>> files_;
    std::vector<Part> parts_; //!< in the order of their offsets, without overlap
};

} // namespace rawduck_ceph
