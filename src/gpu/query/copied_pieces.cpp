#include "gpu/query/copied_pieces.hpp"

#include <algorithm>
#include <exception>

namespace rawduck::gpu {

CopiedPieces::~CopiedPieces() {
    try {
        LetGo();
    } catch (const std::exception &) { // the device failed; its own next call says so
        device_->WaitForAllNoted();
    }
}

void CopiedPieces::LetGo() {
    while (!on_their_way_.empty()) {
        WaitForOldest();
    }
}

void CopiedPieces::WaitForOldest() {
    const OnItsWay &oldest = on_their_way_.front();
    if (oldest.copied) {
        oldest.copied->Wait();
    } else {
        device_->WaitForAllNoted();
    }
    held_bytes_ -= oldest.piece->HeldBytes();
    on_their_way_.pop_front();
    since_finish_ = std::min(since_finish_, on_their_way_.size());
}

QueuedRows CopiedPieces::ToDevice(duckdb::unique_ptr<Piece> piece) {
    QueuedRows rows;
    rows.rows = piece->rows;
    rows.is_listed.assign(piece->columns.size(), false);
    std::vector<CopiedPiece> copies;
    for (const HostColumn &column : piece->columns) {
        rows.columns.push_back(column.ToDevice(*device_, copies));
    }
    if (!copies.empty()) {
        const uint64_t held_bytes = piece->HeldBytes();
        on_their_way_.push_back({std::move(piece), nullptr});
        held_bytes_ += held_bytes;
        since_finish_++;
        device_->CopyInPinned(copies);
        latest_ = on_their_way_.back().copied = device_->CopiesSoFar();
    }
    while (held_bytes_ > MOST_BYTES &&
           on_their_way_.size() > 1) { // one alone is copied beside what comes next
        WaitForOldest();
    }
    return rows;
}

void CopiedPieces::Finish() {
    if (latest_) {
        device_->WaitFor(*latest_);
        latest_.reset();
    }
    while (on_their_way_.size() > since_finish_) {
        WaitForOldest();
    }
    since_finish_ = 0;
}

} // namespace rawduck::gpu
