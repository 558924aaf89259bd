#include "volume/log/metadata_log.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "common/make_room.hpp"

#include <algorithm>
#include <exception>
#include <new>

namespace rawduck {

namespace {

//! Without memory for the failure's own text, a short one. Never throws.
std::string TextOf(const std::exception_ptr &failure) noexcept {
    try {
        std::rethrow_exception(failure);
    } catch (const std::exception &error) {
        try {
            return *error.what() == '\0' ? "unknown error" : error.what();
        } catch (const std::bad_alloc &) {
            return "out of memory";
        }
    } catch (...) {
        return "unknown error";
    }
}

} // namespace

MetadataLog::MetadataLog(BlockIo &io, const JournalImage &image, MetadataTrees &trees, Journal::Zones &zones,
                         FreeFunction free_extents)
    : io_(io), journal_(io, image, trees, zones), free_extents_(std::move(free_extents)),
      has_checksums_(!image.last_checksums.empty()), last_checksums_(image.last_checksums),
      checkpoints_([this] { return WritePendingCheckpoint(); }) {}

MetadataLog::~MetadataLog() {
    checkpoints_.Stop();
}

// What a commit has flushed may have been in doubt since a flush of a checkpoint failed, so that ends everything.
bool MetadataLog::WritePendingCheckpoint() {
    std::string failure;
    const Outcome outcome = Try([this] { journal_.WriteCheckpoint(); }, failure);
    if (outcome == Outcome::FAILED) {
        Poison(failure);
    }
    return outcome != Outcome::OUT_OF_MEMORY;
}

uint64_t MetadataLog::Queue(std::vector<Item> items, std::vector<Extent> freed, Cached cached,
                            std::vector<Segment> writes) {
    std::lock_guard<std::mutex> guard(mutex_);
    ThrowIfPoisoned();
    // All or nothing: what may throw comes first.
    JournalRecord &record = pending_.record;
    MakeRoom(record.items, items.size());
    MakeRoom(pending_.freed, freed.size());
    MakeRoom(record.writes, writes.size());
    for (Item &item : items) {
        record.items.push_back(std::move(item));
    }
    pending_.freed.insert(pending_.freed.end(), freed.begin(), freed.end());
    record.writes.insert(record.writes.end(), writes.begin(), writes.end());
    record.cached = std::max(record.cached, cached);
    return next_ticket_;
}

void MetadataLog::Commit(uint64_t ticket) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (durable_ticket_ < ticket) {
        if (writing_) { // also when poisoned: what is being written may lie in this caller's memory
            written_[ticket % 2].wait(lock);
            continue;
        }
        ThrowIfPoisoned();
        writing_ = true;
        if (!unfinished_) {
            current_ = std::move(pending_);
            pending_ = Group();
            next_ticket_++;
            unfinished_ = true;
        }
        lock.unlock();
        std::string failure;
        const Outcome outcome = TryWriteCurrent(failure);
        lock.lock();
        writing_ = false;
        idle_.notify_all();
        RAWDUCK_INVARIANT(next_ticket_ == durable_ticket_ + 2, "records become durable one after the other");
        unfinished_ = outcome == Outcome::OUT_OF_MEMORY;
        if (unfinished_) {
            // The next to commit, perhaps one of the waiters, tries again for all of the group.
            written_[0].notify_all();
            written_[1].notify_all();
            throw std::bad_alloc();
        }
        if (outcome == Outcome::DURABLE) {
            durable_ticket_++;
        } else if (poisoned_.empty()) {
            poisoned_.swap(failure);
        }
        written_[(next_ticket_ - 1) % 2].notify_all();
        // One waiter of the next group writes for all of it; nobody does when the log is poisoned.
        if (poisoned_.empty()) {
            written_[next_ticket_ % 2].notify_one();
        } else {
            written_[next_ticket_ % 2].notify_all();
        }
    }
}

// Running out of memory is not final: everything that was done can be repeated.
MetadataLog::Outcome MetadataLog::Try(const std::function<void()> &action, std::string &failure) {
    try {
        action();
    } catch (const std::bad_alloc &) {
        return Outcome::OUT_OF_MEMORY;
    } catch (...) {
        failure = TextOf(std::current_exception());
        return Outcome::FAILED;
    }
    return Outcome::DURABLE;
}

MetadataLog::Outcome MetadataLog::TryWriteCurrent(std::string &failure) {
    const Outcome outcome = Try([this] { Write(); }, failure);
    if (journal_.CheckpointPending()) {
        checkpoints_.Wake();
    }
    if (outcome != Outcome::DURABLE) {
        return outcome;
    }
    if (!current_.freed.empty()) {
        free_extents_(current_.freed);
    }
    current_ = Group();
    return Outcome::DURABLE;
}

void MetadataLog::Write() {
    std::vector<DataChecksum> checksums;
    for (const Item &item : current_.record.items) {
        checksums.insert(checksums.end(), item.checksums.begin(), item.checksums.end());
    }
    const bool has_items = !current_.record.items.empty();
    const bool by_record = journal_.Append(current_.record);
    // Nothing after this throws: a durable record is not written again.
    if (has_items) {
        RememberChecksums(by_record ? std::move(checksums) : std::vector<DataChecksum>());
    }
}

// While no record is written, and none has been begun that is yet to be finished.
void MetadataLog::RunAlone(const std::function<void()> &action) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (writing_ || unfinished_) {
        if (writing_) {
            idle_.wait(lock);
            continue;
        }
        const uint64_t ticket = durable_ticket_ + 1;
        lock.unlock();
        Commit(ticket);
        lock.lock();
    }
    ThrowIfPoisoned();
    writing_ = true;
    lock.unlock();
    std::string failure;
    const Outcome outcome = Try(action, failure);
    lock.lock();
    writing_ = false;
    if (outcome == Outcome::FAILED && poisoned_.empty()) {
        poisoned_.swap(failure);
    }
    written_[0].notify_all();
    written_[1].notify_all();
    idle_.notify_all();
    if (outcome == Outcome::OUT_OF_MEMORY) {
        throw std::bad_alloc();
    }
    ThrowIfPoisoned();
}

void MetadataLog::Begin() {
    RunAlone([this] { journal_.Begin(); });
    if (journal_.CheckpointPending()) {
        checkpoints_.Wake();
    }
}

void MetadataLog::Checkpoint() {
    Commit(Queue({}));
    RunAlone([this] { journal_.Checkpoint(); });
}

void MetadataLog::Grow(uint64_t capacity_units) {
    FinishCheckpoint(); // so that commits wait for none of its writes
    std::string refused;
    RunAlone([&] {
        try {
            journal_.BeginGrowth(capacity_units);
        } catch (const Error &error) {
            if (error.Code() != ErrorCode::NO_SPACE) {
                throw;
            }
            refused = error.what(); // which is no reason to take no more writes
        }
    });
    if (!refused.empty()) {
        throw Error(ErrorCode::NO_SPACE, io_.TargetName() + ": the volume cannot grow: " + refused);
    }
    FinishCheckpoint();
}

void MetadataLog::FinishCheckpoint() {
    if (!journal_.CheckpointPending()) {
        return;
    }
    if (!WritePendingCheckpoint()) {
        throw std::bad_alloc();
    }
    std::lock_guard<std::mutex> guard(mutex_);
    ThrowIfPoisoned();
}

void MetadataLog::RememberChecksums(std::vector<DataChecksum> checksums) {
    std::lock_guard<std::mutex> guard(checksums_mutex_);
    last_checksums_.swap(checksums);
    has_checksums_ = !last_checksums_.empty();
}

void MetadataLog::Settle() {
    if (has_checksums_.load(std::memory_order_acquire)) {
        Commit(Queue({Item(ItemType::DATA_CHECKSUM, 0)}));
    }
}

void MetadataLog::BeforeOverwrite(uint64_t device_offset, uint64_t length) {
    if (!has_checksums_.load(std::memory_order_acquire)) {
        return;
    }
    bool covered = false;
    {
        std::lock_guard<std::mutex> guard(checksums_mutex_);
        for (const DataChecksum &range : last_checksums_) {
            covered = covered || (device_offset < range.device_offset + range.length &&
                                  range.device_offset < device_offset + length);
        }
    }
    if (covered) {
        Settle();
    }
}

bool MetadataLog::IsUnchanged() {
    return journal_.IsUnchanged();
}

void MetadataLog::ThrowIfPoisoned() const {
    if (!poisoned_.empty()) {
        throw Error(ErrorCode::POISONED,
                    io_.TargetName() + ": the volume takes no more writes after an earlier failure (" +
                        poisoned_ +
                        "); reading goes on. Detach everything on it, check the device, then "
                        "attach again: what was committed is there");
    }
}

std::string MetadataLog::Poisoned() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return poisoned_;
}

void MetadataLog::Poison(const std::string &reason) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (poisoned_.empty()) {
        poisoned_ = reason;
    }
    // Nobody will write the pending group.
    written_[next_ticket_ % 2].notify_all();
}

} // namespace rawduck
