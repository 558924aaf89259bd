//! Writes a snapshot, or what differs from an earlier one, as a stream. Of both only metadata is read, and of the first the bytes
//! that are sent.
#pragma once

#include "common/memory/aligned_buffer.hpp"
#include "volume/backup/difference.hpp"
#include "volume/backup/stream/stream_bytes.hpp"
#include "volume/backup/stream/stream_format.hpp"
#include "volume/registry.hpp"

#include <memory>
#include <vector>

namespace rawduck {

struct SendOptions {
    std::string since;  //!< name of a snapshot of the same file; empty: all is sent
    std::string resume; //!< see ResumeToken; empty: from the start
};

class Sender {
  public:
    //! `file`: <name>@<snapshot>, or <name>@latest, on the target. While this object exists both snapshots stay, and others may
    //! write to the volume. Throws Error as PinFor, and INVALID for what is no snapshot.
    Sender(const std::string &target, const std::string &file, const SendOptions &options,
           const MountOptions &mount);

    const StreamHeader &Header() const { return header_; }
    //! Sends the next record, and with the last one finishes the sink. False when that is done.
    bool SendPiece(ByteSink &sink);
    uint64_t DataBytes() const { return sent_; }
    uint64_t StreamBytes() const { return stream_bytes_; } //!< written to the sink

  private:
    struct Part {
        StreamRange range;
        bool zeros = false;
    };
    void OpenFiles(const std::string &file, const std::string &base);
    void LeaveOut(const StreamPosition &before);
    void WriteRecord(ByteSink &sink, StreamRecordType type, std::string_view payload,
                     std::string_view more = {});
    void SendPart(ByteSink &sink);

    VolumePin volume_, base_volume_;
    std::vector<std::unique_ptr<OpenFile>> files_;
    StreamHeader header_;
    std::vector<Part> parts_; //!< what is to be sent, in order
    size_t next_ = 0;
    AlignedBuffer buffer_;
    uint64_t sequence_ = 0, sent_ = 0, stream_bytes_ = 0;
    uint32_t crc_ = 0;
    bool ended_ = false;
};

} // namespace rawduck
