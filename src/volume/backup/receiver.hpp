//! Writes what a stream holds. It gets its name when the stream is whole, and not before.
#pragma once

#include "common/units.hpp"
#include "volume/backup/stream/stream_reader.hpp"

#include <memory>
#include <string>

namespace rawduck {

//! Where a stream is received. One stream; each call may throw Error.
class Destination {
  public:
    virtual ~Destination() = default;
    //! Says where the stream has to go on: all before that is there already.
    virtual StreamPosition Begin(const StreamHeader &header) = 0;
    virtual void Write(const StreamPiece &piece) = 0;
    //! All up to there is durable then, and a later stream may go on there, if the destination can keep it.
    virtual void Keep(const StreamPosition &reached) = 0;
    //! The stream was whole. What was received has its name on return, durably.
    virtual void Finish() = 0;
    //! What becomes of what was received when the stream is not whole: the end of a message.
    virtual std::string AfterFailure() const = 0;
};

class Receiver {
  public:
    //! `keep_bytes`: so much may have to be sent again after a power cut.
    Receiver(std::unique_ptr<ByteSource> source, std::unique_ptr<Destination> destination,
             uint64_t keep_bytes = 64 * MIB);

    //! The next record; with the last one the destination is finished. False when that is done. Throws Error; what came is kept
    //! before, if it can be.
    bool ReceivePiece();
    //! Once a piece was received.
    const StreamHeader &Header() const { return reader_->Header(); }
    uint64_t DataBytes() const { return reader_ ? reader_->DataBytes() : 0; }
    uint64_t WrittenBytes() const { return written_; }

  private:
    bool Continue();
    void KeepAfterFailure() noexcept;
    std::unique_ptr<ByteSource> source_;
    std::unique_ptr<Destination> destination_;
    std::unique_ptr<StreamReader> reader_;
    StreamPosition there_, reached_;
    const uint64_t keep_bytes_;
    uint64_t written_ = 0, since_kept_ = 0;
    bool begun_ = false, done_ = false;
};

} // namespace rawduck
