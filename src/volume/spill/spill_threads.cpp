//! The two threads of a SpillBuffer.
#include "common/invariant.hpp"
#include "volume/spill/spill_buffer.hpp"

namespace rawduck {

namespace {
//! Dirty blocks are written once they take this share of the memory: until then they may be dropped, or read
//! and their place overwritten.
constexpr uint64_t DIRTY_SHARE = 4;
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
    return dirty_bytes_ > (write_waiters_ > 0 ? 0 : bytes_max_ / DIRTY_SHARE);
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

void SpillBuffer::WriteBatch(Lock &lock, const Batch &batch) {
    const std::exception_ptr error = Transfer(lock, Opcode::WRITE, batch);
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
        Request request;
        request.opcode = opcode;
        for (const std::shared_ptr<Block> &block : batch) {
            request.segments.push_back(
                Segment{block->device_offset, block->data, block->length, PlacementClass::TEMPORARY});
        }
        io_.Execute(request);
    } catch (...) {
        error = std::current_exception();
    }
    lock.lock();
    return error;
}

} // namespace rawduck
