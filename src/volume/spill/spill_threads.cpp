//! The threads of a SpillBuffer.
#include "common/invariant.hpp"
#include "volume/spill/spill_buffer.hpp"

#include <algorithm>
#include <chrono>
#include <new>

namespace rawduck {

namespace {
//! Memory is given back in pieces, so that it can be taken again meanwhile.
constexpr uint64_t RELEASE_BYTES = 4 * MIB;
//! Pages that nobody has used for so long are given back.
constexpr std::chrono::milliseconds UNUSED_INTERVAL{1000};
//! Between attempts to write where there is no memory for it, and how many there are in a row.
constexpr std::chrono::milliseconds WITHOUT_MEMORY_INTERVAL{20};
constexpr uint32_t WRITES_WITHOUT_MEMORY_MAX = 250;

bool IsOutOfMemory(const std::exception_ptr &error) {
    try {
        if (error) {
            std::rethrow_exception(error);
        }
    } catch (const std::bad_alloc &) {
        return true;
    } catch (...) { // the device failed
    }
    return false;
}
} // namespace

void SpillBuffer::WriteBehind() {
    Lock lock(mutex_);
    while (!stop_) {
        if (MustWrite()) {
            WriteBatch(lock, TakeDirty());
        } else {
            to_write_.wait(lock, [this] { return stop_ || MustWrite(); });
        }
    }
}

bool SpillBuffer::MustWrite() const {
    const bool has_to = write_waiters_ > 0 || excess_bytes_ > 0;
    return dirty_bytes_ > (has_to ? 0 : DirtyBytesMax());
}

SpillBuffer::Batch SpillBuffer::TakeDirty() {
    Batch batch;
    const auto take = [&](Place place) {
        const std::shared_ptr<Block> next = places_[place].front();
        RAWDUCK_INVARIANT(next->state == State::DIRTY && dirty_bytes_ >= next->length,
                          "what waits to be written is dirty, and was counted");
        Put(*next, IN_TRANSFER);
        next->state = State::WRITING;
        dirty_bytes_ -= next->length;
        batch.Add(next);
    };
    while (!places_[TO_WRITE].empty() && !batch.Full()) {
        take(TO_WRITE);
    }
    while (!places_[TO_WRITE_LATE].empty() && !batch.Full() && MustWrite()) {
        take(TO_WRITE_LATE);
    }
    return batch;
}

// Where there is no memory for it, what is in memory stays there for a while.
void SpillBuffer::WriteBatch(Lock &lock, const Batch &batch) {
    const std::exception_ptr error = Transfer(lock, Opcode::WRITE, batch);
    if (IsOutOfMemory(error) && writes_without_memory_ < WRITES_WITHOUT_MEMORY_MAX) {
        writes_without_memory_++;
        PutBack(batch);
        done_.notify_all();
        to_write_.wait_for(lock, WITHOUT_MEMORY_INTERVAL, [this] { return stop_; });
        return;
    }
    writes_without_memory_ = 0;
    for (const std::shared_ptr<Block> &block : batch) {
        RAWDUCK_INVARIANT(block->state == State::WRITING, "a block that is being written stays");
        if (!error) {
            block->state = State::CLEAN;
            PutClean(*block);
        } else {
            block->state = State::FAILED;
            block->error = error;
            Recycle(*block);
        }
    }
    done_.notify_all();
    GiveWay(lock);
}

void SpillBuffer::PutBack(const Batch &batch) {
    for (const std::shared_ptr<Block> &block : batch) {
        RAWDUCK_INVARIANT(block->state == State::WRITING, "a block that is being written stays");
        block->state = State::DIRTY;
        dirty_bytes_ += block->length;
        Put(*block, TO_WRITE);
    }
}

void SpillBuffer::RunPrefetches() {
    Lock lock(mutex_);
    while (!stop_) {
        const Batch batch = TakePrefetches();
        if (batch.count == 0) {
            to_read_.wait(lock, [this] { return stop_ || !to_prefetch_.empty(); });
        } else {
            ReadBatch(lock, batch);
        }
    }
}

SpillBuffer::Batch SpillBuffer::TakePrefetches() {
    Batch batch;
    while (!to_prefetch_.empty() && !batch.Full()) {
        const std::shared_ptr<Block> next = std::move(to_prefetch_.front());
        to_prefetch_.pop_front();
        if (next->state == State::READING) {
            batch.Add(next);
        } else { // dropped meanwhile
            RAWDUCK_INVARIANT(next->holders > 0, "who reads ahead holds the block");
            next->holders--;
            Recycle(*next);
        }
    }
    return batch;
}

// A prefetch that fails is not reported: whoever wants the block reads it again and gets the error.
void SpillBuffer::ReadBatch(Lock &lock, const Batch &batch) {
    const std::exception_ptr error = Transfer(lock, Opcode::READ, batch);
    for (const std::shared_ptr<Block> &block : batch) {
        RAWDUCK_INVARIANT(block->holders > 0, "who reads ahead holds the block");
        block->holders--;
        if (block->state != State::READING) {
            Recycle(*block);
        } else if (!error) {
            block->state = State::CLEAN;
            PutClean(*block);
        } else {
            Drop(block);
        }
    }
    done_.notify_all();
}

// Without the lock. Returns why it failed, or null.
std::exception_ptr SpillBuffer::Transfer(Lock &lock, Opcode opcode, const Batch &batch) {
    lock.unlock();
    std::exception_ptr error;
    try {
        TransferBatch(opcode, batch);
    } catch (...) {
        error = std::current_exception();
    }
    lock.lock();
    return error;
}

// What has no address is copied: the device needs one.
void SpillBuffer::TransferBatch(Opcode opcode, const Batch &batch) {
    static_assert(Batch::BLOCKS_MAX * BLOCK_BYTES_MAX <= SpillMemory::TRANSFER_BYTES);
    const bool is_write = opcode == Opcode::WRITE;
    std::array<char *, Batch::BLOCKS_MAX> data{};
    Request request;
    request.opcode = opcode;
    for (size_t i = 0; i < batch.count; i++) {
        const Block &block = *batch.blocks[i];
        if (memory_.IsMapped(*block.memory)) {
            data[i] = memory_.Address(*block.memory);
        } else {
            const auto transfers = is_write ? SpillMemory::Transfers::WRITES : SpillMemory::Transfers::READS;
            data[i] = memory_.TransferArea(transfers) + i * BLOCK_BYTES_MAX;
            if (is_write) {
                memory_.Read(*block.memory, data[i], block.length);
            }
        }
        request.segments.push_back({block.device_offset, data[i], block.length, PlacementClass::TEMPORARY});
    }
    io_.Execute(request);
    for (size_t i = 0; !is_write && i < batch.count; i++) {
        const Block &block = *batch.blocks[i];
        if (!memory_.IsMapped(*block.memory) && !memory_.Write(*block.memory, data[i], block.length)) {
            throw std::bad_alloc();
        }
    }
}

// A thread of its own: the others may wait for the device.
void SpillBuffer::WatchMemory() {
    auto next_release = std::chrono::steady_clock::now();
    Lock lock(mutex_);
    while (!stop_) {
        if (memory_.GrownBytes() == 0) {
            watcher_rests_ = true;
            to_watch_.wait(lock, [this] { return stop_ || memory_.GrownBytes() > 0; });
            watcher_rests_ = false;
            excess_bytes_ = 0;
        }
        to_watch_.wait_for(lock, limits_.supply ? limits_.supply->Interval() : UNUSED_INTERVAL,
                           [this] { return stop_; });
        if (limits_.supply) {
            AskSupply(lock);
        }
        const auto now = std::chrono::steady_clock::now();
        if (now >= next_release) {
            ReleaseUnused(lock);
            next_release = now + UNUSED_INTERVAL;
        }
    }
}

void SpillBuffer::AskSupply(Lock &lock) {
    const uint64_t held_bytes = memory_.GrownBytes();
    lock.unlock();
    const uint64_t excess_bytes = limits_.supply->ToGiveBack(held_bytes);
    lock.lock();
    excess_bytes_ = excess_bytes;
    GiveWay(lock);
    if (MustWrite()) {
        to_write_.notify_one();
    }
}

// What is dirty, or still in use, follows when it is written, or at the next look.
void SpillBuffer::GiveWay(Lock &lock) {
    while (excess_bytes_ > 0) {
        const uint64_t released = Release(lock, excess_bytes_);
        if (released == 0 && !EvictGrown()) {
            return;
        }
        counters_.given_way_bytes += released;
        excess_bytes_ -= std::min(excess_bytes_, released);
    }
}

void SpillBuffer::ReleaseUnused(Lock &lock) {
    uint64_t unused_bytes = memory_.LongUnusedBytes();
    while (unused_bytes > 0 && !stop_) {
        const uint64_t released = Release(lock, unused_bytes);
        unused_bytes = released > 0 ? unused_bytes - std::min(unused_bytes, released) : 0;
    }
}

// A piece at most, without the lock. Returns how many bytes; 0 when there is nothing.
uint64_t SpillBuffer::Release(Lock &lock, uint64_t bytes) {
    const std::optional<SpillMemory::Part> part = memory_.TakeUnused(std::min(bytes, RELEASE_BYTES));
    if (!part) {
        return 0;
    }
    lock.unlock();
    memory_.GiveToSystem(*part);
    lock.lock();
    memory_.IsGone(*part);
    return part->bytes;
}

// Drops the oldest clean block whose memory can be given back. False when there is none.
bool SpillBuffer::EvictGrown() {
    for (const Place place : {USED, WRITTEN, PREFETCHED}) {
        for (const std::shared_ptr<Block> &block : places_[place]) {
            if (!memory_.IsMapped(*block->memory)) {
                Drop(block);
                return true;
            }
        }
    }
    return false;
}

} // namespace rawduck
