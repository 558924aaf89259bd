#include "volume/spill_buffer.hpp"

#include "common/error.hpp"
#include "device/fork_generation.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {
//! DuckDB's default block: what it spills is this long or shorter, apart from single very large values.
constexpr uint64_t BUFFER_BYTES = 256 * KIB;
//! Blocks written together: enough to keep a device busy, few enough that memory comes back soon.
constexpr size_t BATCH_BUFFERS_MAX = 8;
} // namespace

SpillBuffer::SpillBuffer(BlockIo &io, uint64_t bytes_max)
    : io_(io), buffers_max_(bytes_max / BUFFER_BYTES), fork_generation_(ForkGeneration()) {}

SpillBuffer::~SpillBuffer() {
    if (fork_generation_ != ForkGeneration()) {
        writer_.detach(); // it runs in the parent only
        return;
    }
    {
        Lock lock(mutex_);
        stop_ = true;
        queue_.clear();
    }
    work_.notify_all();
    if (writer_.joinable()) {
        writer_.join();
    }
}

void SpillBuffer::Write(const Request &request) {
    for (const Segment &segment : request.segments) {
        if (!TryKeep(segment)) {
            io_.Write(segment.device_offset, segment.data, segment.length, PlacementClass::TEMPORARY);
        }
    }
}

// Room is taken under the mutex and filled outside it; the range becomes visible when its bytes are there.
bool SpillBuffer::TryKeep(const Segment &segment) {
    if (fork_generation_ != ForkGeneration()) {
        return false;
    }
    auto pending = std::make_shared<Pending>();
    {
        Lock lock(mutex_);
        ClearRange(lock, segment.device_offset, segment.length);
        if (segment.length > BUFFER_BYTES || (free_buffers_.empty() && buffers_ == buffers_max_)) {
            return false;
        }
        if (free_buffers_.empty()) {
            free_buffers_.emplace_back(BUFFER_BYTES);
            buffers_++;
        }
        pending->data = std::move(free_buffers_.back());
        free_buffers_.pop_back();
        if (!writer_.joinable()) {
            writer_ = std::thread([this] { WriteBehind(); });
        }
    }
    memcpy(pending->data.Data(), segment.data, segment.length);
    pending->device_offset = segment.device_offset;
    pending->length = segment.length;
    Lock lock(mutex_);
    pending_[segment.device_offset] = pending;
    queue_.push_back(std::move(pending));
    if (queue_.size() == 1) {
        work_.notify_one();
    }
    return true;
}

void SpillBuffer::Read(const Request &request) {
    for (const Segment &segment : request.segments) {
        ReadSegment(segment);
    }
}

void SpillBuffer::ReadSegment(const Segment &segment) {
    std::shared_ptr<Pending> holder;
    if (fork_generation_ == ForkGeneration()) {
        Lock lock(mutex_);
        holder = FindHolder(lock, segment);
        if (holder) {
            holder->readers++;
        }
    }
    if (!holder) {
        io_.Read(segment.device_offset, segment.data, segment.length);
        return;
    }
    memcpy(segment.data, holder->data.Data() + (segment.device_offset - holder->device_offset),
           segment.length);
    Lock lock(mutex_);
    holder->readers--;
    Recycle(*holder);
}

// The pending write that has all of the segment; null once the target has it.
std::shared_ptr<SpillBuffer::Pending> SpillBuffer::FindHolder(Lock &lock, const Segment &segment) {
    const uint64_t end = segment.device_offset + segment.length;
    for (;;) {
        const auto found = FirstOverlap(segment.device_offset, segment.length);
        if (found == pending_.end()) {
            return nullptr;
        }
        const Pending &pending = *found->second;
        if (pending.state == State::FAILED) {
            throw Error(ErrorCode::IO,
                        "the spilled bytes were lost when they were written to the target: " + pending.error);
        }
        if (pending.device_offset <= segment.device_offset && pending.device_offset + pending.length >= end) {
            return found->second;
        }
        done_.wait(lock); // it has only a part: the target will have all
    }
}

void SpillBuffer::Forget(const std::vector<Extent> &extents) {
    for (const Extent &extent : extents) {
        Forget(extent.start * UNIT_SIZE, extent.units * UNIT_SIZE);
    }
}

void SpillBuffer::Forget(uint64_t device_offset, uint64_t length) {
    if (fork_generation_ != ForkGeneration()) {
        return;
    }
    Lock lock(mutex_);
    ClearRange(lock, device_offset, length);
}

// Afterwards nothing pending overlaps the range. A write that has not begun and lies in it altogether is
// dropped.
void SpillBuffer::ClearRange(Lock &lock, uint64_t device_offset, uint64_t length) {
    const uint64_t end = device_offset + length;
    for (;;) {
        const auto found = FirstOverlap(device_offset, length);
        if (found == pending_.end()) {
            return;
        }
        Pending &pending = *found->second;
        const bool covered =
            pending.device_offset >= device_offset && pending.device_offset + pending.length <= end;
        if (pending.state == State::FAILED) {
            ShrinkFailed(found, device_offset, end);
        } else if (pending.state == State::QUEUED && covered) {
            const std::shared_ptr<Pending> dropped = found->second;
            pending_.erase(found);
            Retire(*dropped, State::OVER);
        } else {
            done_.wait(lock);
        }
    }
}

SpillBuffer::PendingMap::iterator SpillBuffer::FirstOverlap(uint64_t device_offset, uint64_t length) {
    auto found = pending_.upper_bound(device_offset);
    if (found != pending_.begin()) {
        const auto before = std::prev(found);
        if (before->first + before->second->length > device_offset) {
            return before;
        }
    }
    return found != pending_.end() && found->first < device_offset + length ? found : pending_.end();
}

// What lies outside [device_offset, end) is still lost.
void SpillBuffer::ShrinkFailed(PendingMap::iterator failed, uint64_t device_offset, uint64_t end) {
    const std::shared_ptr<Pending> lost = failed->second;
    const uint64_t lost_end = lost->device_offset + lost->length;
    pending_.erase(failed);
    const auto keep = [&](uint64_t from, uint64_t to) {
        if (from < to) {
            auto rest = std::make_shared<Pending>();
            rest->device_offset = from;
            rest->length = to - from;
            rest->state = State::FAILED;
            rest->error = lost->error;
            pending_[from] = std::move(rest);
        }
    };
    keep(lost->device_offset, std::min(device_offset, lost_end));
    keep(std::max(end, lost->device_offset), lost_end);
}

void SpillBuffer::Retire(Pending &pending, State state) {
    pending.state = state;
    Recycle(pending);
}

void SpillBuffer::Recycle(Pending &pending) {
    const bool idle = pending.state == State::OVER || pending.state == State::FAILED;
    if (idle && pending.readers == 0 && !pending.data.Empty()) {
        free_buffers_.push_back(std::move(pending.data));
        pending.data = AlignedBuffer();
    }
}

void SpillBuffer::Shrink() {
    if (fork_generation_ == ForkGeneration()) {
        Lock lock(mutex_);
        buffers_ -= free_buffers_.size();
        free_buffers_.clear();
    }
}

uint64_t SpillBuffer::HeldBytes() const {
    if (fork_generation_ != ForkGeneration()) {
        return 0;
    }
    Lock lock(mutex_);
    return buffers_ * BUFFER_BYTES;
}

void SpillBuffer::WriteBehind() {
    Lock lock(mutex_);
    while (!stop_) {
        const std::vector<std::shared_ptr<Pending>> batch = TakeBatch();
        if (batch.empty()) {
            work_.wait(lock, [this] { return stop_ || !queue_.empty(); });
        } else {
            WriteBatch(lock, batch);
        }
    }
}

std::vector<std::shared_ptr<SpillBuffer::Pending>> SpillBuffer::TakeBatch() {
    std::vector<std::shared_ptr<Pending>> batch;
    while (!queue_.empty() && batch.size() < BATCH_BUFFERS_MAX) {
        const std::shared_ptr<Pending> &next = queue_.front();
        if (next->state == State::QUEUED) {
            next->state = State::WRITING;
            batch.push_back(next);
        }
        queue_.pop_front();
    }
    return batch;
}

void SpillBuffer::WriteBatch(Lock &lock, const std::vector<std::shared_ptr<Pending>> &batch) {
    Request request;
    request.opcode = Opcode::WRITE;
    for (const std::shared_ptr<Pending> &pending : batch) {
        request.segments.push_back(Segment{pending->device_offset, pending->data.Data(), pending->length,
                                           PlacementClass::TEMPORARY});
    }
    lock.unlock();
    std::string error;
    try {
        io_.Execute(request);
    } catch (const std::exception &failure) {
        error = failure.what();
    }
    lock.lock();
    for (const std::shared_ptr<Pending> &pending : batch) {
        if (error.empty()) {
            pending_.erase(pending->device_offset);
            Retire(*pending, State::OVER);
        } else {
            pending->error = error;
            Retire(*pending, State::FAILED);
        }
    }
    done_.notify_all();
}

} // namespace rawduck
