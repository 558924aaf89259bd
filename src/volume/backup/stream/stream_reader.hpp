//! Reads a stream and believes nothing of it: whatever is handed out is checked, within the files that the stream describes, and
//! behind what came before.
#pragma once

#include "volume/backup/stream/stream_bytes.hpp"
#include "volume/backup/stream/stream_format.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace rawduck {

//! Bytes of a file.
struct StreamPiece {
    StreamRange range;
    const char *data = nullptr; //!< null: zeros. Valid until the next piece is read
    StreamPosition Begin() const { return {range.file, range.offset}; }
    StreamPosition End() const { return {range.file, range.offset + range.length}; }
};

class StreamReader {
  public:
    //! Reads the first record. Throws Error CORRUPT, saying in which record and at which byte of the stream, UNSUPPORTED for a
    //! version that is not known, and what the source throws.
    explicit StreamReader(ByteSource &source);

    const StreamHeader &Header() const { return header_; }
    //! Nothing at the end, which is whole then: all records came, and their checksums hold. Throws as the constructor.
    std::optional<StreamPiece> Next();
    uint64_t Records() const { return records_; }
    uint64_t Bytes() const { return bytes_; }          //!< read of the stream
    uint64_t DataBytes() const { return data_bytes_; } //!< of files

  private:
    [[noreturn]] void Refuse(const std::string &why) const;
    void ReadWhole(char *data, uint64_t length);
    //! Into header_bytes_ and payload_.
    StreamRecordHeader ReadRecord();
    void RequireInOrder(const StreamRange &range);
    void TakeEnd(uint32_t crc_before, uint64_t records_before);

    ByteSource &source_;
    StreamHeader header_;
    std::string header_bytes_, payload_;
    StreamPosition at_; //!< what was handed out ends there
    uint64_t records_ = 0, bytes_ = 0, data_bytes_ = 0;
    uint32_t crc_ = 0; //!< of all bytes so far
    bool ended_ = false;
};

} // namespace rawduck
