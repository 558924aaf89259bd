//! Predicts which spilled blocks are read next. DuckDB spills the blocks of a sorted run or of a partition
//! one after the other and reads each once, in that order, while it goes through several runs or partitions
//! at a time. So what was written soon after the block that is read now is likely to be wanted soon.
#pragma once

#include "io/device/device.hpp"

#include <deque>
#include <map>
#include <vector>

namespace rawduck {

//! Not thread-safe. Ranges are of the target, in bytes. Holds up to BLOCKS_MAX blocks, about 2.5 MiB.
class SpillOrder {
  public:
    //! Beyond this, the oldest are forgotten: they are still read, but not prefetched.
    static constexpr size_t BLOCKS_MAX = 32 * 1024;

    //! The range is on the target, or will be before it is asked for. It must not overlap one that is known.
    //! Without memory to note it, it is not known.
    void Written(uint64_t device_offset, uint32_t length) noexcept;
    //! What overlaps the range is no longer there.
    void Forget(uint64_t device_offset, uint64_t length);
    //! The block that starts here is being read, and not expected to be read again. Returns those to read
    //! ahead, the next one first; none if the block is not known.
    std::vector<DeviceRange> Read(uint64_t device_offset);
    //! Blocks known.
    size_t Size() const { return sequence_.size(); }

  private:
    //! Of length 0: forgotten or read.
    struct Block {
        uint64_t device_offset;
        uint32_t length;
    };
    Block &At(uint64_t sequence) { return blocks_[sequence - first_]; }
    void DropOldest();

    std::deque<Block> blocks_;              //!< in the order of writing
    uint64_t first_ = 0;                    //!< the sequence number of blocks_.front()
    std::map<uint64_t, uint64_t> sequence_; //!< by device offset
};

} // namespace rawduck
