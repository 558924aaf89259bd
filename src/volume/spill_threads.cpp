//! The two threads of a SpillBuffer.
#include "volume/spill_buffer.hpp"

namespace rawduck {

namespace {
//! Blocks transferred together: enough to keep a device busy, few enough that the first is not kept waiting.
constexpr size_t BATCH_BLOCKS_MAX = 8;
//! What is dirty waits until it takes this share of the memory: until then it may be dropped, or read and its
//! place written anew.
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
    return dirty_bytes_ > (hurry_ > 0 ? 0 : bytes_max_ / DIRTY_SHARE);
}

std::vector<std::shared_ptr<SpillBuffer::Block>> SpillBuffer::TakeDirty() {
    std::vector<std::shared_ptr<Block>> batch;
    const auto take = [&](Place place) {
        const std::shared_ptr<Block> next = places_[place].front();
        Put(next, NOWHERE);
        next->state = State::WRITING;
        dirty_bytes_ -= next->length;
        batch.push_back(next);
    };
    while (!places_[TO_WRITE].empty() && batch.size() < BATCH_BLOCKS_MAX) {
        take(TO_WRITE);
    }
    while (!places_[TO_WRITE_LATE].empty() && batch.size() < BATCH_BLOCKS_MAX && MustWrite()) {
        take(TO_WRITE_LATE);
    }
    return batch;
}

void SpillBuffer::WriteBatch(Lock &lock, const std::vector<std::shared_ptr<Block>> &batch) {
    const std::string error = Transfer(lock, Opcode::WRITE, batch);
    for (const std::shared_ptr<Block> &block : batch) {
        if (error.empty()) {
            block->state = State::CLEAN;
            PutClean(block);
        } else {
            block->state = State::FAILED;
            block->error = error;
            Recycle(*block);
        }
    }
    done_.notify_all();
}

void SpillBuffer::ReadWanted() {
    Lock lock(mutex_);
    while (!stop_) {
        const std::vector<std::shared_ptr<Block>> batch = TakeWanted();
        if (batch.empty()) {
            to_read_.wait(lock, [this] { return stop_ || !wanted_.empty(); });
        } else {
            ReadBatch(lock, batch);
        }
    }
}

std::vector<std::shared_ptr<SpillBuffer::Block>> SpillBuffer::TakeWanted() {
    std::vector<std::shared_ptr<Block>> batch;
    while (!wanted_.empty() && batch.size() < BATCH_BLOCKS_MAX) {
        const std::shared_ptr<Block> next = std::move(wanted_.front());
        wanted_.pop_front();
        if (next->state == State::READING) {
            batch.push_back(next);
        } else { // dropped meanwhile
            next->holders--;
            Recycle(*next);
        }
    }
    return batch;
}

// A read that fails is forgotten here: who wants the block reads it again and is told.
void SpillBuffer::ReadBatch(Lock &lock, const std::vector<std::shared_ptr<Block>> &batch) {
    const std::string error = Transfer(lock, Opcode::READ, batch);
    for (const std::shared_ptr<Block> &block : batch) {
        block->holders--;
        if (block->state != State::READING) {
            Recycle(*block);
        } else if (error.empty()) {
            block->state = State::CLEAN;
            PutClean(block);
        } else {
            Drop(block);
        }
    }
    done_.notify_all();
}

// Without the lock. Returns why it failed, or nothing.
std::string SpillBuffer::Transfer(Lock &lock, Opcode opcode,
                                  const std::vector<std::shared_ptr<Block>> &batch) {
    Request request;
    request.opcode = opcode;
    for (const std::shared_ptr<Block> &block : batch) {
        request.segments.push_back(
            Segment{block->device_offset, block->data, block->length, PlacementClass::TEMPORARY});
    }
    lock.unlock();
    std::string error;
    try {
        io_.Execute(request);
    } catch (const std::exception &failure) {
        error = failure.what();
    }
    lock.lock();
    return error;
}

} // namespace rawduck
