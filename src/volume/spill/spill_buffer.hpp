//! A write-back buffer between temporary files and the target. A spilled block is copied into it, and a
//! background thread writes dirty blocks, many in flight at a time. Clean blocks stay while there is room,
//! and another thread prefetches the blocks that SpillOrder expects to be read next. Temporary data need not
//! be durable, so a dirty block that is dropped is never written.
//!
//! A third thread gives back what nobody has used for a second. With limits that ask a MemorySupply, there is as much
//! memory as is free, and that thread gives it back when others need it: clean blocks at once, dirty ones when they
//! are written.
//!
//! Without memory or threads for it, blocks are written and read directly: that costs time, but no query
//! fails. Threads hand over blocks by moving pointers between lists, so that running out of memory cannot
//! lose a block.
//!
//! It knows ranges of the target, not files: two blocks never overlap, and a range must be forgotten before
//! its space is allocated again.
#pragma once

#include "io/block_io.hpp"
#include "volume/format/record.hpp"
#include "volume/spill/spill_counters.hpp"
#include "volume/spill/spill_memory.hpp"
#include "volume/spill/spill_order.hpp"

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace rawduck {

//! Thread-safe. The caller orders writes and reads of the same range against each other, as for a device. In
//! a child made by fork() writes and reads throw Error UNSUPPORTED through BlockIo, and Forget does nothing.
class SpillBuffer {
  public:
    //! Holds at most that much memory, and what SpillOrder holds; without any,
    //! it writes and reads everything at once.
    SpillBuffer(BlockIo &io, const SpillLimits &limits);
    //! What is not written is dropped.
    ~SpillBuffer();
    SpillBuffer(const SpillBuffer &) = delete;
    SpillBuffer &operator=(const SpillBuffer &) = delete;

    //! Returns when the bytes are in memory or on the target. Writes itself when the memory is used up, or
    //! the segment is longer than a block. Throws as BlockIo::Execute.
    void Write(const Request &request);
    //! Takes from memory what is there. Throws Error IO for a
    //! range whose late write failed, and as BlockIo::Execute.
    void Read(const Request &request);
    //! Drops dirty and clean blocks in the ranges, and waits for writes that are in flight.
    void Forget(const std::vector<Extent> &extents);
    void Forget(uint64_t device_offset, uint64_t length);

    //! Gives memory back that is not in use.
    void Shrink();
    //! Bytes of memory held.
    uint64_t HeldBytes() const;
    //! Bytes of memory that it may hold, as far as is known.
    uint64_t CapacityBytes() const;
    SpillCounters Counters() const;

  private:
    //! DuckDB's default block: what it spills is this long or shorter, apart from single very large values.
    static constexpr uint64_t BLOCK_BYTES_MAX = 256 * KIB;

    enum class State : uint8_t {
        DIRTY, //!< not written yet
        WRITING,
        READING, //!< ahead
        CLEAN,   //!< the target has the same bytes
        FAILED,  //!< the target does not have the bytes, and neither have we
        REMOVED  //!< no longer in the map
    };
    //! Lists of blocks, oldest first; each is in one. IN_TRANSFER holds those that do not wait: what is being
    //! written or read, or was lost.
    enum Place : uint8_t { TO_WRITE, TO_WRITE_LATE, USED, WRITTEN, PREFETCHED, IN_TRANSFER, PLACES };
    struct Block;
    using Blocks = std::list<std::shared_ptr<Block>>;
    struct Block {
        uint64_t device_offset = 0, length = 0;
        State state = State::DIRTY;
        bool used = false;              //!< was read, and is not expected to be read again
        uint32_t holders = 0;           //!< that use its memory outside the mutex
        uint64_t prefetched_at = 0;     //!< counters_.reads when it was prefetched; 0: it was written
        std::optional<uint64_t> memory; //!< its place in memory_
        uint64_t memory_bytes = 0;      //!< there; a FAILED block may have become shorter
        std::exception_ptr error;       //!< of a FAILED one
        Place place = IN_TRANSFER;
        bool inserted = false; //!< it is in the map, and in the list of its place
        Blocks::iterator at;
    };
    using BlockMap = std::map<uint64_t, std::shared_ptr<Block>>;
    using Lock = std::unique_lock<std::mutex>;
    //! Blocks transferred together: enough to keep a device
    //! busy, few enough that the first is not kept waiting.
    struct Batch {
        static constexpr size_t BLOCKS_MAX = 8;
        std::array<std::shared_ptr<Block>, BLOCKS_MAX> blocks;
        size_t count = 0;
        void Add(std::shared_ptr<Block> block) { blocks[count++] = std::move(block); }
        bool Full() const { return count == BLOCKS_MAX; }
        auto begin() const { return blocks.begin(); }
        auto end() const { return blocks.begin() + static_cast<std::ptrdiff_t>(count); }
    };

    bool IsEnabled() const;
    bool StartThreads();
    bool TryBuffer(const Segment &segment);
    std::shared_ptr<Block> MakeBlock(const Segment &segment);
    uint64_t ReadPiece(const Segment &segment);
    std::shared_ptr<Block> FindHolder(Lock &lock, uint64_t device_offset, uint64_t &length);
    void CountRead(const std::shared_ptr<Block> &holder, const Segment &piece);
    void Prefetch(uint64_t device_offset);
    bool Prefetch(const DeviceRange &range);
    void ClearRange(Lock &lock, uint64_t device_offset, uint64_t length);
    BlockMap::iterator FirstOverlap(uint64_t device_offset, uint64_t length);
    void ShrinkFailed(BlockMap::iterator failed, uint64_t device_offset, uint64_t end);

    void Insert(const std::shared_ptr<Block> &block);
    void Abandon(Block &block);
    void Put(Block &block, Place place);
    void PutClean(Block &block);
    bool IsConsistent() const;
    void Drop(std::shared_ptr<Block> block);
    void Recycle(Block &block);
    std::optional<uint64_t> TakeMemory(uint64_t length);
    std::optional<uint64_t> AllocateForWrite(uint64_t length);
    std::optional<uint64_t> AllocateForPrefetch(uint64_t length);
    bool EvictOldest(Place place);
    bool EvictGrown();

    void WriteBehind();
    bool MustWrite() const;
    bool IsTooDirty() const;
    //! Dirty blocks are written once they take a quarter of the memory: until then they may be dropped, or read and
    //! their place overwritten. The rest can be given back at once.
    uint64_t DirtyBytesMax() const { return memory_.CapacityBytes() / 4; }
    Batch TakeDirty();
    void WriteBatch(Lock &lock, const Batch &batch);
    void PutBack(const Batch &batch);
    void RunPrefetches();
    Batch TakePrefetches();
    void ReadBatch(Lock &lock, const Batch &batch);
    std::exception_ptr Transfer(Lock &lock, Opcode opcode, const Batch &batch);
    void TransferBatch(Opcode opcode, const Batch &batch);
    void WatchMemory();
    void AskSupply(Lock &lock);
    void GiveWay(Lock &lock);
    void ReleaseUnused(Lock &lock);
    uint64_t Release(Lock &lock, uint64_t bytes);

    BlockIo &io_;
    const SpillLimits limits_;
    const uint64_t fork_generation_;

    //! Guards what follows. Not held during I/O, or while blocks are copied or much memory goes back to the system. Under it,
    //! MemorySupply looks at the system: every 100 ms, and for each eighth of what is free that is taken.
    mutable std::mutex mutex_;
    std::condition_variable to_write_, to_read_, to_watch_, done_;
    SpillMemory memory_;
    SpillOrder order_;
    BlockMap blocks_; //!< by device offset
    std::array<Blocks, PLACES> places_;
    std::deque<std::shared_ptr<Block>> to_prefetch_; //!< READING ones that nobody reads yet
    SpillCounters counters_;
    uint64_t dirty_bytes_ = 0;
    uint32_t write_waiters_ = 0;         //!< threads that wait for a write of what is DIRTY
    uint32_t writes_without_memory_ = 0; //!< that failed for that, the last ones
    uint64_t excess_bytes_ = 0;          //!< of memory, to be given back
    bool watcher_rests_ = false;
    bool stop_ = false;
    std::thread writer_, reader_, watcher_; //!< started by the first write
};

} // namespace rawduck
