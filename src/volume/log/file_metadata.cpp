#include "volume/log/file_metadata.hpp"

#include "common/invariant.hpp"

#include <algorithm>

namespace rawduck {

uint64_t FileMetadata::Needed() const {
    EntrySize most = Max(now_, published_);
    most += under_way_;
    return MetadataBytes(most);
}

void FileMetadata::Begin(const EntrySize &size) {
    const uint64_t needed = MetadataBytes(size);
    room_.Take(needed, MetadataUse::CREATE);
    held_ = needed;
    now_ = size;
}

void FileMetadata::BeginLog(const EntrySize &size) {
    if (!TryTakeForLog(MetadataBytes(size))) {
        Begin(size); // says why not
    }
    now_ = size;
}

void FileMetadata::BeginFound(const EntrySize &size) {
    now_ = published_ = size;
    held_ = Needed();
    room_.TakeFound(held_);
}

bool FileMetadata::TryExtendLog(const EntrySize &size) {
    std::lock_guard<std::mutex> guard(mutex_);
    const EntrySize before = now_;
    now_ = size;
    if (TryTakeForLog(Needed())) {
        return true;
    }
    now_ = before;
    return false;
}

// Entirely from one part or the other, the same after a mount as before it.
bool FileMetadata::TryTakeForLog(uint64_t needed) {
    if (room_.TryTakeForLogs(needed)) {
        room_.Give(held_);
        held_ = for_logs_ = needed;
        return true;
    }
    const uint64_t more = needed - std::min(needed, held_);
    const bool taken = room_.TryTake(more, MetadataUse::CREATE);
    held_ += taken ? more : 0;
    return taken;
}

// What is kept for logs goes last: others have no use for it.
void FileMetadata::Give(uint64_t bytes) {
    const uint64_t rest = held_ - bytes;
    const uint64_t to_logs = for_logs_ - std::min(for_logs_, rest);
    room_.GiveForLogs(to_logs);
    room_.Give(bytes - to_logs);
    for_logs_ -= to_logs;
    held_ = rest;
}

void FileMetadata::GiveSurplus() {
    RAWDUCK_INVARIANT(MetadataBytes(Max(now_, published_)) <= held_,
                      "room for metadata is set aside before it is needed");
    // What others have made may be in it already, and is counted as under way as well.
    Give(held_ - std::min(held_, Needed()));
}

void FileMetadata::Take(const EntrySize &more, MetadataUse use) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (retired_) {
        return;
    }
    under_way_ += more;
    const uint64_t needed = Needed();
    if (needed <= held_) {
        return;
    }
    try {
        room_.Take(needed - held_, use);
    } catch (...) {
        under_way_ -= more;
        throw;
    }
    held_ = needed;
}

void FileMetadata::Settle(const EntrySize &taken, const EntrySize &now) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!retired_) {
        under_way_ -= taken;
        now_ = now;
        GiveSurplus();
    }
}

void FileMetadata::Published(const EntrySize &now) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!retired_) {
        published_ = now_ = now;
        GiveSurplus();
    }
}

void FileMetadata::GiveBack(const EntrySize &taken) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!retired_) {
        under_way_ -= taken;
        GiveSurplus();
    }
}

void FileMetadata::Renamed(const EntrySize &taken, uint64_t name_bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!retired_) {
        under_way_ -= taken;
        now_.name_bytes = published_.name_bytes = name_bytes;
        GiveSurplus();
    }
}

void FileMetadata::Retire() {
    std::lock_guard<std::mutex> guard(mutex_);
    Give(held_);
    now_ = published_ = under_way_ = EntrySize();
    retired_ = true;
}

} // namespace rawduck
