#include "volume/backup/receiver.hpp"

#include "common/error.hpp"

#include <algorithm>

namespace rawduck {

Receiver::Receiver(std::unique_ptr<ByteSource> source, std::unique_ptr<Destination> destination,
                   uint64_t keep_bytes)
    : source_(std::move(source)), destination_(std::move(destination)), keep_bytes_(keep_bytes) {}

bool Receiver::ReceivePiece() {
    try {
        return Continue();
    } catch (const Error &error) {
        const bool had_begun = begun_ && !done_;
        KeepAfterFailure();
        if (!had_begun || error.Code() == ErrorCode::INTERRUPTED) {
            throw;
        }
        throw Error(error.Code(), std::string(error.what()) + destination_->AfterFailure());
    } catch (...) {
        KeepAfterFailure();
        throw;
    }
}

void Receiver::KeepAfterFailure() noexcept {
    if (!begun_ || done_) {
        return;
    }
    try {
        destination_->Keep(reached_);
    } catch (const std::exception &) {
        // What was kept before is there still, and the first error says what is wrong.
    }
}

bool Receiver::Continue() {
    if (!reader_) {
        reader_ = std::make_unique<StreamReader>(*source_);
        there_ = destination_->Begin(reader_->Header());
        reached_ = std::max(there_, reader_->Header().from);
        begun_ = true;
        return true;
    }
    if (done_) {
        return false;
    }
    const std::optional<StreamPiece> piece = reader_->Next();
    if (!piece) {
        destination_->Finish();
        done_ = true;
        return false;
    }
    if (!(there_ < piece->End())) {
        return true; // it is there already
    }
    destination_->Write(*piece);
    reached_ = piece->End();
    written_ += piece->data ? piece->range.length : 0;
    since_kept_ += piece->range.length;
    if (since_kept_ >= keep_bytes_) {
        destination_->Keep(reached_);
        since_kept_ = 0;
    }
    return true;
}

} // namespace rawduck
