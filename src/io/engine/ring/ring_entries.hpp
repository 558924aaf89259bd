//! Which entries of a submission ring the kernel may still read.
//!
//! A command of IORING_OP_URING_CMD for which an NVMe driver has no tag left is carried out later, by a worker of the
//! kernel's. Linux with commit 5eff57fa9f3a and without e663da62ba86 ("io_uring/uring_cmd: switch sqe to async_data on
//! EAGAIN"), 6.12.95 for one, reads it from the ring again then, where another command may lie by now: that one is carried
//! out twice and the first one never, and both are said to have succeeded. So an entry is used again when its command has
//! completed, not as soon as the kernel has taken it. Entries are used in turn: a command in flight stands in the way of
//! the one that comes a whole round later, and a ring has several times as many of them as there are commands in flight.
#pragma once

#include "common/invariant.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace rawduck {

//! Not thread-safe.
class RingEntries {
  public:
    //! How many a ring needs for so many commands in flight, at most `count_max`: a power of two, as `count_max` is.
    static uint32_t CountFor(uint32_t depth, uint32_t count_max) {
        uint32_t count = 1;
        while (count < depth * ROUNDS && count < count_max) {
            count *= 2;
        }
        return count;
    }

    explicit RingEntries(uint32_t count) : in_use_(count) {}
    uint32_t Count() const { return static_cast<uint32_t>(in_use_.size()); }
    bool NextIsFree() const { return !in_use_[next_]; }
    //! The entry whose turn it is, which has to be free.
    uint32_t Take() {
        RAWDUCK_INVARIANT(NextIsFree(), "an entry is used again when its command has completed");
        const uint32_t taken = next_;
        in_use_[taken] = true;
        next_ = (next_ + 1) % Count();
        return taken;
    }
    void Give(uint32_t entry) {
        RAWDUCK_INVARIANT(in_use_[entry], "a command completes once");
        in_use_[entry] = false;
    }
    //! Of a new ring.
    void Reset() { std::fill(in_use_.begin(), in_use_.end(), false); }

  private:
    static constexpr uint32_t ROUNDS = 4;

    std::vector<bool> in_use_;
    uint32_t next_ = 0;
};

} // namespace rawduck
