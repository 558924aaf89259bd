//! A buffer of recently read blocks. DuckDB prefetches blocks, and when memory is short it evicts some of
//! them before they are used; then a thread waits for each of them again. A file system would still have them
//! in the page cache.
#pragma once

#include "common/memory/aligned_buffer.hpp"
#include "common/units.hpp"

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace rawduck {

//! Counted since it was made.
struct RereadCounters {
    uint64_t reads = 0; //!< of ranges that had been read shortly before
    uint64_t hits = 0;  //!< of those, answered from memory
};

//! Copying takes time, so blocks are copied only while that pays off: at first only the ranges of reads are
//! recorded. Once a recorded range is read again, the reads that follow are copied. Thread-safe. Ranges are
//! of the target, in bytes.
class RereadBuffer {
  public:
    //! A longer read is kept in pieces of this size: DuckDB's largest block.
    static constexpr uint64_t PIECE_BYTES = 256 * KIB;
    //! Less than DuckDB's smallest block is not worth it.
    static constexpr uint64_t PIECE_BYTES_MIN = 16 * KIB;

    //! `bytes_max`: at least one piece.
    explicit RereadBuffer(uint64_t bytes_max) : pieces_max_(bytes_max / PIECE_BYTES) {}

    //! To be asked for before a read from the target.
    uint64_t Ticket() const;
    //! Copies the range to `data` if all of it is here, in one piece; returns whether it was.
    bool Read(uint64_t device_offset, char *data, uint64_t length);
    //! `data` was read from the target after `ticket`. Not kept when anything was written since, or the
    //! system has no memory for it.
    void Keep(uint64_t ticket, uint64_t device_offset, const char *data, uint64_t length);
    //! To be called when the range was written, before anybody is told so. Reads meanwhile may return either.
    void Invalidate(uint64_t device_offset, uint64_t length);
    uint64_t HeldBytes() const;
    RereadCounters Counters() const;

  private:
    struct Slot {
        AlignedBuffer memory;
        uint32_t users = 0; //!< the piece that it belongs to, and threads that copy
    };
    struct Piece {
        uint64_t device_offset, length;
        Slot *slot; //!< null: only noted
    };
    using Order = std::list<Piece>;

    void KeepPiece(uint64_t ticket, uint64_t device_offset, const char *data, uint64_t length);
    bool NotePieces(uint64_t ticket, uint64_t device_offset, uint64_t length);
    Slot *TakeSlot();
    bool Insert(const Piece &piece);
    static void Release(Slot &slot);
    bool IsConsistent() const;
    void Drop(Order::iterator piece);
    void DropOverlapping(uint64_t device_offset, uint64_t length);

    const uint64_t pieces_max_;
    mutable std::mutex mutex_;                      //!< guards what follows; not held while pieces are copied
    std::atomic<uint64_t> version_{0};              //!< counts what was written; read without the lock
    uint32_t credit_ = 0;                           //!< above zero: what is read is kept
    Order order_;                                   //!< evicted from the front
    std::map<uint64_t, Order::iterator> by_offset_; //!< do not overlap
    std::vector<std::unique_ptr<Slot>> slots_;
    RereadCounters counters_;
};

} // namespace rawduck
