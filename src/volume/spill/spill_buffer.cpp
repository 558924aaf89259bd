#include "volume/spill/spill_buffer.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "common/process/fork_generation.hpp"
#include "common/scope_exit.hpp"

#include <algorithm>
#include <new>
#include <system_error>

namespace rawduck {

namespace {
//! A prefetched block that was not read during this many reads per prefetched block was a wrong guess.
constexpr uint64_t UNUSED_READS_PER_BLOCK_MAX = 2;

std::string TextOf(const std::exception_ptr &failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const std::exception &error) {
        return error.what();
    }
}
} // namespace

SpillBuffer::SpillBuffer(BlockIo &io, const SpillLimits &limits)
    : io_(io), limits_(limits), fork_generation_(ForkGeneration()), memory_(limits, &io) {}

SpillBuffer::~SpillBuffer() {
    if (fork_generation_ != ForkGeneration()) {
        for (std::thread *thread : {&writer_, &reader_, &watcher_}) {
            if (thread->joinable()) {
                thread->detach(); // it runs in the parent only
            }
        }
        return;
    }
    {
        Lock lock(mutex_);
        stop_ = true;
    }
    to_write_.notify_all();
    to_read_.notify_all();
    to_watch_.notify_all();
    for (std::thread *thread : {&writer_, &reader_, &watcher_}) {
        if (thread->joinable()) {
            thread->join();
        }
    }
}

void SpillBuffer::Write(const Request &request) {
    for (const Segment &segment : request.segments) {
        if (!TryBuffer(segment)) {
            io_.Write(segment.device_offset, segment.data, segment.length, PlacementClass::TEMPORARY);
            if (IsEnabled() && segment.length <= BLOCK_BYTES_MAX) {
                Lock lock(mutex_);
                order_.Written(segment.device_offset, static_cast<uint32_t>(segment.length));
            }
        }
    }
}

// Memory is allocated under the mutex and filled outside it. The block becomes visible, to prefetching too,
// when its bytes are there.
bool SpillBuffer::TryBuffer(const Segment &segment) {
    if (!IsEnabled()) {
        return false;
    }
    std::shared_ptr<Block> block;
    {
        Lock lock(mutex_);
        ClearRange(lock, segment.device_offset, segment.length);
        if (segment.length > BLOCK_BYTES_MAX || !StartThreads() || IsTooDirty() ||
            !(block = MakeBlock(segment))) {
            return false;
        }
    }
    const bool is_copied = memory_.Write(*block->memory, segment.data, segment.length);
    Lock lock(mutex_);
    try {
        if (!is_copied) {
            throw std::bad_alloc();
        }
        Insert(block);
    } catch (const std::bad_alloc &) {
        Abandon(*block);
        return false;
    }
    Put(*block, TO_WRITE);
    dirty_bytes_ += block->length;
    if (MustWrite()) {
        to_write_.notify_one();
    }
    RAWDUCK_SLOW_INVARIANT(IsConsistent(),
                           "blocks of the spill buffer do not overlap, and each is in one list");
    order_.Written(segment.device_offset, static_cast<uint32_t>(segment.length));
    return true;
}

// With memory to copy the segment to; null when there is none.
std::shared_ptr<SpillBuffer::Block> SpillBuffer::MakeBlock(const Segment &segment) {
    try {
        auto block = std::make_shared<Block>();
        block->device_offset = segment.device_offset;
        block->length = segment.length;
        block->memory_bytes = segment.length;
        block->memory = AllocateForWrite(segment.length);
        return block->memory ? block : nullptr;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

//! Whoever spills faster than the device writes, waits for the device: what is dirty cannot be given back.
bool SpillBuffer::IsTooDirty() const {
    return limits_.supply && dirty_bytes_ > DirtyBytesMax() + SpillLimits::MAPPED_BYTES_MAX;
}

// False where the system has no more threads: then nothing is kept, because nobody would write it.
bool SpillBuffer::StartThreads() {
    try {
        if (!writer_.joinable()) {
            writer_ = std::thread([this] { WriteBehind(); });
        }
        if (!reader_.joinable()) {
            reader_ = std::thread([this] { RunPrefetches(); });
        }
        if (!limits_.IsAllMapped() && !watcher_.joinable()) {
            watcher_ = std::thread([this] { WatchMemory(); });
        }
    } catch (const std::system_error &) {
        return false;
    }
    return true;
}

void SpillBuffer::Read(const Request &request) {
    for (Segment rest : request.segments) {
        while (rest.length > 0) {
            const uint64_t length = ReadPiece(rest);
            rest.device_offset += length;
            rest.data += length;
            rest.length -= length;
        }
    }
}

// Reads the front of the segment: what one block has of it, or what lies before the next block. Returns how
// much that was.
uint64_t SpillBuffer::ReadPiece(const Segment &segment) {
    Segment piece = segment;
    std::shared_ptr<Block> holder;
    if (IsEnabled()) {
        Lock lock(mutex_);
        holder = FindHolder(lock, piece.device_offset, piece.length);
        CountRead(holder, piece);
        if (holder) {
            RAWDUCK_INVARIANT(holder->memory && piece.device_offset >= holder->device_offset &&
                                  piece.device_offset - holder->device_offset + piece.length <=
                                      holder->length,
                              "what is read lies in its block");
            holder->holders++;
        }
        Prefetch(piece.device_offset);
    }
    if (!holder) {
        io_.Read(piece.device_offset, piece.data, piece.length, PlacementClass::TEMPORARY);
        return piece.length;
    }
    const ScopeExit done([this, &holder] {
        Lock lock(mutex_);
        RAWDUCK_INVARIANT(holder->holders > 0, "who copies from a block holds it");
        holder->holders--;
        if (holder->state == State::CLEAN) {
            PutClean(*holder);
        }
        Recycle(*holder);
    });
    memory_.Read(*holder->memory + (piece.device_offset - holder->device_offset), piece.data, piece.length);
    return piece.length;
}

// The block that has the front of the range, and in `length` how much it has; or null, and how much of the
// range only the target has.
std::shared_ptr<SpillBuffer::Block> SpillBuffer::FindHolder(Lock &lock, uint64_t device_offset,
                                                            uint64_t &length) {
    for (;;) {
        const auto found = FirstOverlap(device_offset, length);
        if (found == blocks_.end()) {
            return nullptr;
        }
        const Block &block = *found->second;
        if (block.device_offset > device_offset) {
            length = block.device_offset - device_offset;
            return nullptr;
        }
        if (block.state == State::FAILED) {
            throw Error(ErrorCode::IO, "the spilled bytes were lost when they were written to the target: " +
                                           TextOf(block.error));
        }
        if (block.state != State::READING) {
            length = std::min(length, block.device_offset + block.length - device_offset);
            return found->second;
        }
        done_.wait(lock);
    }
}

// A block that was read as a whole is not expected to be read again: it is evicted first and written last,
// because its place may be overwritten before.
void SpillBuffer::CountRead(const std::shared_ptr<Block> &holder, const Segment &piece) {
    counters_.reads++;
    if (!holder) {
        return;
    }
    counters_.hits++;
    if (piece.length == holder->length) {
        holder->used = true;
        if (holder->place == TO_WRITE) {
            Put(*holder, TO_WRITE_LATE);
        }
    }
}

// Without memory for it, nothing is prefetched.
void SpillBuffer::Prefetch(uint64_t device_offset) {
    if (!reader_.joinable()) {
        return;
    }
    try {
        for (const DeviceRange &range : order_.Read(device_offset)) {
            if (FirstOverlap(range.device_offset, range.length) == blocks_.end() && !Prefetch(range)) {
                break;
            }
        }
    } catch (const std::bad_alloc &) {
    }
    if (!to_prefetch_.empty()) {
        to_read_.notify_one();
    }
}

// False when there is no room.
bool SpillBuffer::Prefetch(const DeviceRange &range) {
    auto block = std::make_shared<Block>();
    block->device_offset = range.device_offset;
    block->length = range.length;
    block->state = State::READING;
    block->prefetched_at = counters_.reads;
    block->memory_bytes = range.length;
    block->memory = AllocateForPrefetch(range.length);
    if (!block->memory) {
        return false;
    }
    try {
        Insert(block);
        to_prefetch_.push_back(block);
    } catch (const std::bad_alloc &) {
        Abandon(*block); // nobody may find what nobody reads, and wait for it
        throw;
    }
    block->holders = 1; // whoever reads it from the target
    counters_.ahead++;
    return true;
}

void SpillBuffer::Forget(const std::vector<Extent> &extents) {
    for (const Extent &extent : extents) {
        Forget(extent.start * ALLOCATION_UNIT_BYTES, extent.units * ALLOCATION_UNIT_BYTES);
    }
}

void SpillBuffer::Forget(uint64_t device_offset, uint64_t length) {
    if (!IsEnabled()) {
        return;
    }
    Lock lock(mutex_);
    ClearRange(lock, device_offset, length);
}

// Afterwards no block overlaps the range. A write that has not begun and lies in it altogether is dropped.
void SpillBuffer::ClearRange(Lock &lock, uint64_t device_offset, uint64_t length) {
    order_.Forget(device_offset, length);
    const uint64_t end = device_offset + length;
    for (;;) {
        const auto found = FirstOverlap(device_offset, length);
        if (found == blocks_.end()) {
            RAWDUCK_SLOW_INVARIANT(IsConsistent(),
                                   "blocks of the spill buffer do not overlap, and each is in one list");
            return;
        }
        const std::shared_ptr<Block> block = found->second;
        const bool covered =
            block->device_offset >= device_offset && block->device_offset + block->length <= end;
        if (block->state == State::FAILED) {
            ShrinkFailed(found, device_offset, end);
        } else if (block->state == State::WRITING || (block->state == State::DIRTY && !covered)) {
            const uint32_t not_begun = block->state == State::DIRTY ? 1 : 0;
            write_waiters_ += not_begun;
            to_write_.notify_one();
            done_.wait(lock);
            write_waiters_ -= not_begun;
        } else {
            Drop(block);
        }
    }
}

SpillBuffer::BlockMap::iterator SpillBuffer::FirstOverlap(uint64_t device_offset, uint64_t length) {
    auto found = blocks_.upper_bound(device_offset);
    if (found != blocks_.begin()) {
        const auto before = std::prev(found);
        if (before->first + before->second->length > device_offset) {
            return before;
        }
    }
    return found != blocks_.end() && found->first < device_offset + length ? found : blocks_.end();
}

// What lies outside [device_offset, end) is still lost.
void SpillBuffer::ShrinkFailed(BlockMap::iterator failed, uint64_t device_offset, uint64_t end) {
    const std::shared_ptr<Block> lost = failed->second;
    const uint64_t lost_end = lost->device_offset + lost->length;
    if (lost_end > end) { // first, so that nothing is forgotten if there is no memory for it
        auto rest = std::make_shared<Block>();
        rest->device_offset = end;
        rest->length = lost_end - end;
        rest->state = State::FAILED;
        rest->error = lost->error;
        Insert(rest);
    }
    if (lost->device_offset < device_offset) {
        lost->length = device_offset - lost->device_offset;
    } else {
        Drop(lost);
    }
}

// Adds it to the map and to a list, or to neither when there is no memory.
void SpillBuffer::Insert(const std::shared_ptr<Block> &block) {
    Blocks entry;
    entry.push_back(block);
    blocks_.emplace(block->device_offset, block);
    block->at = entry.begin();
    block->place = IN_TRANSFER;
    block->inserted = true;
    places_[IN_TRANSFER].splice(places_[IN_TRANSFER].end(), entry);
}

// When memory has run out.
void SpillBuffer::Abandon(Block &block) {
    memory_.Give(*block.memory, block.memory_bytes);
    if (block.inserted) {
        places_[block.place].erase(block.at);
        blocks_.erase(block.device_offset);
    }
}

void SpillBuffer::Put(Block &block, Place place) {
    places_[place].splice(places_[place].end(), places_[block.place], block.at);
    block.place = place;
}

void SpillBuffer::PutClean(Block &block) {
    const bool prefetched = block.prefetched_at > 0;
    const Place place = block.used ? USED : prefetched ? PREFETCHED : WRITTEN;
    if (block.place != place) {
        Put(block, place);
    }
}

bool SpillBuffer::IsConsistent() const {
    uint64_t end = 0, dirty = 0;
    size_t listed = 0;
    for (const auto &[device_offset, block] : blocks_) {
        if (device_offset != block->device_offset || device_offset < end || block->length == 0) {
            return false;
        }
        end = device_offset + block->length;
        dirty += block->place == TO_WRITE || block->place == TO_WRITE_LATE ? block->length : 0;
    }
    for (const Blocks &place : places_) {
        listed += place.size();
    }
    return listed == blocks_.size() && dirty == dirty_bytes_;
}

// By value: `block` may be the last reference. Its memory is freed when no thread uses it any more.
void SpillBuffer::Drop(std::shared_ptr<Block> block) {
    RAWDUCK_INVARIANT(block->state != State::WRITING, "a block is not dropped while it is being written");
    if (block->state == State::DIRTY) {
        RAWDUCK_INVARIANT(dirty_bytes_ >= block->length, "what is dirty was counted");
        dirty_bytes_ -= block->length;
    }
    counters_.unused += block->prefetched_at > 0 && !block->used ? 1 : 0;
    places_[block->place].erase(block->at);
    blocks_.erase(block->device_offset);
    block->state = State::REMOVED;
    Recycle(*block);
}

void SpillBuffer::Recycle(Block &block) {
    const bool idle = block.state == State::REMOVED || block.state == State::FAILED;
    if (idle && block.holders == 0 && block.memory) {
        memory_.Give(*block.memory, block.memory_bytes);
        block.memory.reset();
    }
}

std::optional<uint64_t> SpillBuffer::TakeMemory(uint64_t length) {
    const std::optional<uint64_t> memory = memory_.Take(length);
    if (watcher_rests_ && memory_.GrownBytes() > 0) {
        to_watch_.notify_one();
    }
    return memory;
}

// Memory for a block that is written: clean blocks are evicted for it.
std::optional<uint64_t> SpillBuffer::AllocateForWrite(uint64_t length) {
    for (;;) {
        const std::optional<uint64_t> memory = TakeMemory(length);
        if (memory || !(EvictOldest(USED) || EvictOldest(WRITTEN) || EvictOldest(PREFETCHED))) {
            return memory;
        }
    }
}

// Memory for a block to be prefetched. Other prefetched blocks are not evicted unless they were wrong
// guesses: when more runs are read than there is memory for, prefetching for some of them is best.
std::optional<uint64_t> SpillBuffer::AllocateForPrefetch(uint64_t length) {
    const Blocks &ahead = places_[PREFETCHED];
    const uint64_t unused_reads_max = UNUSED_READS_PER_BLOCK_MAX * ahead.size();
    const bool oldest_is_unused =
        !ahead.empty() && counters_.reads - ahead.front()->prefetched_at > unused_reads_max;
    if (oldest_is_unused) {
        EvictOldest(PREFETCHED);
    } else if ((ahead.size() + to_prefetch_.size()) * BLOCK_BYTES_MAX > memory_.CapacityBytes()) {
        return std::nullopt;
    }
    for (;;) {
        const std::optional<uint64_t> memory = TakeMemory(length);
        if (memory || !(EvictOldest(USED) || EvictOldest(WRITTEN))) {
            return memory;
        }
    }
}

// Drops the oldest block of that list. False if it is empty.
bool SpillBuffer::EvictOldest(Place place) {
    if (places_[place].empty()) {
        return false;
    }
    Drop(places_[place].front());
    return true;
}

bool SpillBuffer::IsEnabled() const {
    return limits_.bytes_max > 0 && fork_generation_ == ForkGeneration();
}

void SpillBuffer::Shrink() {
    if (IsEnabled()) {
        Lock lock(mutex_);
        memory_.Shrink();
    }
}

uint64_t SpillBuffer::HeldBytes() const {
    if (!IsEnabled()) {
        return 0;
    }
    Lock lock(mutex_);
    return memory_.HeldBytes();
}

uint64_t SpillBuffer::CapacityBytes() const {
    if (!IsEnabled()) {
        return 0;
    }
    Lock lock(mutex_);
    return memory_.CapacityBytes();
}

SpillCounters SpillBuffer::Counters() const {
    if (!IsEnabled()) {
        return {};
    }
    Lock lock(mutex_);
    return counters_;
}

} // namespace rawduck
