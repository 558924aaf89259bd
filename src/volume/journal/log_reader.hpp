//! Walks the records of an area of the log through a window that slides forward, so that mounting reads little
//! more than the log is long and needs memory for one read and one record.
#pragma once

#include "common/memory/aligned_buffer.hpp"
#include "volume/format/record.hpp"
#include "volume/format/salvage_read.hpp"

namespace rawduck {

//! Positions are bytes from the start of what it walks, multiples of the LBA size, and never decrease from
//! call to call. LBAs that cannot be read are zeros and so part of no whole record.
class LogReader {
  public:
    //! `start` and `bytes`: where the records of the volume lie on the target.
    LogReader(BlockIo &io, const Uuid &uuid, uint32_t lba_size, uint64_t start, uint64_t bytes)
        : io_(io), uuid_(uuid), lba_size_(lba_size), start_(start), bytes_(bytes) {}

    //! Is there a whole record of this epoch at `position`? If so, `header` is filled and `payload` is valid
    //! until the next call.
    bool RecordAt(uint64_t position, uint64_t epoch, RecordHeader &header, const char *&payload);

    //! Of the whole record at `position`; 0 when there is none.
    uint64_t EpochAt(uint64_t position);
    //! That a header at `position` names, whatever becomes of its record; 0 when there is none.
    uint64_t ClaimedEpochAt(uint64_t position);

    //! Where RecordAt found none: the device's error for an unreadable LBA of a record at `position`. Empty
    //! when all of its LBAs are readable: then there is no record.
    std::string ErrorAt(uint64_t position, uint64_t epoch);

    //! Where a whole record of this epoch lies behind the one, damaged or torn, at `position`; 0 when none
    //! does. That one is never longer than RECORD_BYTES_MAX, so the search ends there.
    uint64_t RecordBehind(uint64_t position, uint64_t epoch);

    //! What the whole records of this epoch and later ones from `position` on say, whatever lies between them.
    std::vector<Item> ItemsFrom(uint64_t position, uint64_t epoch);

    //! The epoch of the first whole record from here on, at most `bytes` away, that belongs to a later one than `epoch`;
    //! 0 when there is none.
    uint64_t LaterEpoch(uint64_t epoch, uint64_t bytes);

  private:
    uint64_t Available(uint64_t position) const { return position < filled_ ? filled_ - position : 0; }
    const char *Load(uint64_t position, uint64_t length);

    //! A short log costs one short read, a long one is read in pieces that keep a device busy.
    static constexpr uint64_t READ_BYTES_FIRST = 128 * KIB, READ_BYTES_MAX = 4 * MIB;

    BlockIo &io_;
    const Uuid uuid_;
    const uint32_t lba_size_;
    const uint64_t start_, bytes_;
    uint64_t window_start_ = 0, filled_ = 0, read_bytes_ = READ_BYTES_FIRST;
    AlignedBuffer window_;
    UnreadableLbas unreadable_;
};

} // namespace rawduck
