//! Write-behind for temporary files: a spilled block is copied into memory and the thread that spilled it
//! goes on; one thread of the volume writes what has collected, many blocks in flight together. Nobody is
//! promised that temporary bytes are durable, so a write that is forgotten before it starts is never made at
//! all.
//!
//! Works on ranges of the target, not on files: two pending ranges never overlap, and a range must be
//! forgotten before its space is given to anybody else.
#pragma once

#include "common/aligned_buffer.hpp"
#include "io/block_io.hpp"
#include "volume/format/record.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rawduck {

//! Thread-safe. The caller orders writes and reads of the same range against each other, as for a device. In
//! a child made by fork() writes and reads throw Error UNSUPPORTED through BlockIo, and Forget does nothing.
class SpillBuffer {
  public:
    //! Holds at most `bytes_max` bytes of memory; 0 writes everything at once.
    SpillBuffer(BlockIo &io, uint64_t bytes_max);
    //! What is pending is dropped.
    ~SpillBuffer();
    SpillBuffer(const SpillBuffer &) = delete;
    SpillBuffer &operator=(const SpillBuffer &) = delete;

    //! Returns when the bytes are in memory or on the target. Writes itself when the memory is used up, or
    //! the segment is longer than a block. Throws as BlockIo::Execute.
    void Write(const Request &request);
    //! Takes from memory what is still there. Throws Error IO for a range whose late write failed, and as
    //! BlockIo::Execute.
    void Read(const Request &request);
    //! The ranges no longer matter: their pending writes are dropped, those in flight waited for.
    void Forget(const std::vector<Extent> &extents);
    void Forget(uint64_t device_offset, uint64_t length);

    //! Gives memory back that is not in use.
    void Shrink();
    //! Bytes of memory held.
    uint64_t HeldBytes() const;

  private:
    enum class State : uint8_t {
        QUEUED,
        WRITING,
        FAILED, //!< the target does not have the bytes, and neither have we
        OVER    //!< written or dropped; no longer in the map
    };
    struct Pending {
        uint64_t device_offset = 0, length = 0;
        State state = State::QUEUED;
        uint32_t readers = 0; //!< that copy from `data` outside the mutex
        AlignedBuffer data;
        std::string error; //!< of a FAILED one
    };
    using Lock = std::unique_lock<std::mutex>;
    using PendingMap = std::map<uint64_t, std::shared_ptr<Pending>>;

    bool TryKeep(const Segment &segment);
    void ReadSegment(const Segment &segment);
    void ClearRange(Lock &lock, uint64_t device_offset, uint64_t length);
    PendingMap::iterator FirstOverlap(uint64_t device_offset, uint64_t length);
    std::shared_ptr<Pending> FindHolder(Lock &lock, const Segment &segment);
    void ShrinkFailed(PendingMap::iterator failed, uint64_t device_offset, uint64_t end);
    void Retire(Pending &pending, State state);
    void Recycle(Pending &pending);
    void WriteBehind();
    std::vector<std::shared_ptr<Pending>> TakeBatch();
    void WriteBatch(Lock &lock, const std::vector<std::shared_ptr<Pending>> &batch);

    BlockIo &io_;
    const size_t buffers_max_;
    const uint64_t fork_generation_;

    mutable std::mutex mutex_;
    std::condition_variable work_, done_;
    PendingMap pending_; //!< by device offset
    std::deque<std::shared_ptr<Pending>> queue_;
    std::vector<AlignedBuffer> free_buffers_;
    size_t buffers_ = 0; //!< free ones and those in use
    bool stop_ = false;
    std::thread writer_; //!< started by the first write
};

} // namespace rawduck
