#include "io/reread_buffer.hpp"

#include "common/invariant.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>

namespace rawduck {
namespace {

//! Copies that one reread pays for, and the most that can be saved up. Copying continues while more than one
//! read in CREDIT_PER_REREAD is a reread, which costs far more than as many copies.
constexpr uint32_t CREDIT_PER_REREAD = 32;
constexpr uint32_t CREDIT_MAX = 128;

} // namespace

uint64_t RereadBuffer::Ticket() const {
    return version_.load(std::memory_order_acquire);
}

bool RereadBuffer::Read(uint64_t device_offset, char *data, uint64_t length) {
    if (length < PIECE_BYTES_MIN || length > PIECE_BYTES) {
        return false;
    }
    Slot *slot = nullptr;
    uint64_t into = 0;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        auto next = by_offset_.upper_bound(device_offset);
        if (next == by_offset_.begin()) {
            return false;
        }
        const Order::iterator piece = std::prev(next)->second;
        into = device_offset - piece->device_offset;
        if (into + length > piece->length) {
            return false;
        }
        counters_.reads++;
        credit_ = std::min(credit_ + CREDIT_PER_REREAD, CREDIT_MAX);
        slot = piece->slot;
        if (!slot) {
            return false;
        }
        counters_.hits++;
        slot->users++;
        order_.splice(order_.begin(), order_,
                      piece); // DuckDB has it now, and is unlikely to ask a third time
    }
    memcpy(data, slot->memory.Data() + into, length);
    std::lock_guard<std::mutex> guard(mutex_);
    Release(*slot);
    return true;
}

void RereadBuffer::Keep(uint64_t ticket, uint64_t device_offset, const char *data, uint64_t length) {
    if (NotePieces(ticket, device_offset, length)) {
        return;
    }
    for (uint64_t done = 0; done < length; done += PIECE_BYTES) {
        const uint64_t piece = std::min(PIECE_BYTES, length - done);
        if (piece >= PIECE_BYTES_MIN) {
            KeepPiece(ticket, device_offset + done, data + done, piece);
        }
    }
}

//! Where nothing is kept, that the range was read; under one lock for all of its pieces. False: something may be kept.
bool RereadBuffer::NotePieces(uint64_t ticket, uint64_t device_offset, uint64_t length) {
    std::lock_guard<std::mutex> guard(mutex_);
    for (uint64_t done = 0; credit_ == 0 && version_ == ticket && done < length; done += PIECE_BYTES) {
        const uint64_t piece = std::min(PIECE_BYTES, length - done);
        if (piece >= PIECE_BYTES_MIN) {
            Insert({device_offset + done, piece, nullptr});
        }
    }
    return credit_ == 0 || version_ != ticket;
}

void RereadBuffer::KeepPiece(uint64_t ticket, uint64_t device_offset, const char *data, uint64_t length) {
    Slot *slot = nullptr;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (version_ != ticket) {
            return;
        }
        if (credit_ > 0) {
            credit_--;
            slot = TakeSlot();
        }
    }
    if (slot) {
        memcpy(slot->memory.Data(), data, length);
    }
    std::lock_guard<std::mutex> guard(mutex_);
    if (version_ != ticket || !Insert({device_offset, length, slot})) {
        if (slot) {
            Release(*slot);
        }
    }
}

// False when the system has no memory: the read has succeeded, and needs none of this.
bool RereadBuffer::Insert(const Piece &piece) {
    DropOverlapping(piece.device_offset, piece.length);
    if (order_.size() >= pieces_max_) {
        Drop(order_.begin());
    }
    try {
        Order entry{piece};
        by_offset_.emplace(piece.device_offset, entry.begin());
        order_.splice(order_.end(), entry);
    } catch (const std::bad_alloc &) {
        return false;
    }
    RAWDUCK_SLOW_INVARIANT(IsConsistent(), "pieces that were read do not overlap, and each is noted once");
    return true;
}

void RereadBuffer::Release(Slot &slot) {
    RAWDUCK_INVARIANT(slot.users > 0, "memory of a piece that was read is let go of once");
    slot.users--;
}

bool RereadBuffer::IsConsistent() const {
    uint64_t end = 0;
    for (const auto &[device_offset, piece] : by_offset_) {
        const bool in_place = device_offset == piece->device_offset && device_offset >= end;
        if (!in_place || piece->length > PIECE_BYTES || (piece->slot && piece->slot->users == 0)) {
            return false;
        }
        end = device_offset + piece->length;
    }
    return order_.size() == by_offset_.size() && order_.size() <= pieces_max_ && slots_.size() <= pieces_max_;
}

// Null when all are in use by threads that copy, or the system has no memory.
RereadBuffer::Slot *RereadBuffer::TakeSlot() {
    auto is_free = [](const std::unique_ptr<Slot> &slot) { return slot->users == 0; };
    auto found = std::find_if(slots_.begin(), slots_.end(), is_free);
    if (found == slots_.end() && slots_.size() < pieces_max_) {
        try {
            auto slot = std::make_unique<Slot>();
            slot->memory.Resize(PIECE_BYTES);
            slots_.push_back(std::move(slot));
        } catch (const std::bad_alloc &) {
            return nullptr;
        }
        found = std::prev(slots_.end());
    }
    for (auto oldest = order_.begin(); found == slots_.end() && oldest != order_.end();) {
        const auto piece = oldest++;
        if (piece->slot) {
            Drop(piece);
            found = std::find_if(slots_.begin(), slots_.end(), is_free);
        }
    }
    if (found == slots_.end()) {
        return nullptr;
    }
    (*found)->users = 1;
    return found->get();
}

void RereadBuffer::Drop(Order::iterator piece) {
    if (piece->slot) {
        Release(*piece->slot);
    }
    by_offset_.erase(piece->device_offset);
    order_.erase(piece);
}

void RereadBuffer::DropOverlapping(uint64_t device_offset, uint64_t length) {
    auto next = by_offset_.upper_bound(device_offset);
    if (next != by_offset_.begin()) {
        next = std::prev(next);
    }
    while (next != by_offset_.end() && next->first < device_offset + length) {
        const Order::iterator piece = (next++)->second;
        if (piece->device_offset + piece->length > device_offset) {
            Drop(piece);
        }
    }
}

void RereadBuffer::Invalidate(uint64_t device_offset, uint64_t length) {
    std::lock_guard<std::mutex> guard(mutex_);
    version_++;
    DropOverlapping(device_offset, length);
}

uint64_t RereadBuffer::HeldBytes() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return slots_.size() * PIECE_BYTES;
}

RereadCounters RereadBuffer::Counters() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return counters_;
}

} // namespace rawduck
