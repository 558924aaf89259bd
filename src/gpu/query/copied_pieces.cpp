#include "gpu/query/copied_pieces.hpp"

#include <algorithm>
#include <exception>

namespace rawduck::gpu {

CopiedPieces::~CopiedPieces() {
    try {
        while (!on_their_way_.empty()) {
            WaitForOldest();
        }
    } catch (const std::exception &) { // the device failed; its own next call says so
        device_->WaitForAllNoted();
    }
}

void CopiedPieces::WaitForOldest() {
    const OnItsWay &oldest = on_their_way_.front();
    if (oldest.copied) {
        oldest.copied->Wait();
    } else {
        device_->WaitForAllNoted();
    }
    bytes_ -= oldest.piece->Bytes();
    on_their_way_.pop_front();
}

QueuedRows CopiedPieces::ToDevice(duckdb::unique_ptr<Piece> piece) {
    QueuedRows rows;
    rows.rows = piece->rows;
    rows.is_listed.assign(piece->columns.size(), false);
    const bool is_pinned = std::all_of(piece->columns.begin(), piece->columns.end(),
                                       [](const HostColumn &column) { return column.IsPinned(); });
    std::vector<CopiedPiece> copies;
    for (const HostColumn &column : piece->columns) {
        rows.columns.push_back(is_pinned ? column.RoomOnDevice(*device_, copies) : column.ToDevice(*device_));
    }
    if (is_pinned) {
        bytes_ += piece->Bytes();
        on_their_way_.push_back({std::move(piece), nullptr});
        device_->CopyInPinned(copies);
        latest_ = on_their_way_.back().copied = device_->CopiesSoFar();
        while (bytes_ > MOST_BYTES) {
            WaitForOldest();
        }
    }
    return rows;
}

void CopiedPieces::Finish() {
    if (latest_) {
        device_->WaitFor(*latest_);
        latest_.reset();
    }
}

} // namespace rawduck::gpu
