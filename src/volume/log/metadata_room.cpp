#include "volume/log/metadata_room.hpp"

#include "common/error.hpp"
#include "volume/log/volume_image.hpp"

#include <algorithm>

namespace rawduck {

namespace {

//! What each kind of use leaves to the next: a share of the room, and at most this many bytes.
constexpr uint64_t KEPT_BYTES_MAX = 4 * MIB;
constexpr uint64_t LOG_SHARE = 16;
constexpr uint64_t NEW_LOG_SHARE = 8;
constexpr uint64_t REPLACE_SHARE = 16;
constexpr uint64_t GROW_SHARE = 16;
//! The log gets the rest of the area: this share of it, and at most the length of a log.
constexpr uint64_t AREA_LOG_SHARE = 4;
//! Volumes of this size have the largest metadata areas.
constexpr uint64_t AREA_GROWS_UNTIL_BYTES = 16 * GIB;

uint64_t LimitOf(const Superblock &superblock) {
    const uint64_t area = superblock.metadata_units * ALLOCATION_UNIT_BYTES;
    return area - std::min(area / AREA_LOG_SHARE, LOG_BYTES_MAX);
}

std::string AdviceFor(const Superblock &superblock) {
    std::string advice = "remove files, or store the same in fewer and larger ones";
    if (superblock.lba_size > 512) {
        advice +=
            "; where the device has LBAs of 512 bytes, a volume formatted with them holds several times "
            "as many small files, whose unfinished LBAs are part of the metadata";
    }
    if (superblock.capacity_units * ALLOCATION_UNIT_BYTES < AREA_GROWS_UNTIL_BYTES) {
        advice += "; a larger volume has more room for metadata";
    }
    return advice;
}

} // namespace

MetadataRoom::MetadataRoom(const Superblock &superblock, std::string target_name)
    : target_name_(std::move(target_name)), advice_(AdviceFor(superblock)),
      for_logs_(std::min(LimitOf(superblock) / NEW_LOG_SHARE, KEPT_BYTES_MAX)),
      limit_(LimitOf(superblock) - for_logs_) {}

uint64_t MetadataRoom::Limit(MetadataUse use) const {
    uint64_t limit = limit_;
    limit -= use < MetadataUse::LOG ? std::min(limit_ / LOG_SHARE, KEPT_BYTES_MAX) : 0;
    limit -= use < MetadataUse::REPLACE ? std::min(limit_ / REPLACE_SHARE, KEPT_BYTES_MAX) : 0;
    limit -= use < MetadataUse::GROW ? std::min(limit_ / GROW_SHARE, KEPT_BYTES_MAX) : 0;
    return limit;
}

bool MetadataRoom::TryTake(uint64_t bytes, MetadataUse use) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (bytes > 0 && taken_ + bytes > Limit(use)) {
        return false;
    }
    taken_ += bytes;
    return true;
}

void MetadataRoom::Take(uint64_t bytes, MetadataUse use) {
    if (!TryTake(bytes, use)) {
        throw Error(ErrorCode::NO_SPACE,
                    target_name_ + ": the metadata area is full: " + std::to_string(Taken()) + " of " +
                        std::to_string(limit_) +
                        " bytes are in use, and the rest is kept for commits to the files that "
                        "are there; " +
                        advice_);
    }
}

void MetadataRoom::TakeFound(uint64_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    taken_ += bytes;
}

void MetadataRoom::Give(uint64_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    RAWDUCK_INVARIANT(bytes <= taken_, "no more room for metadata is given back than was taken");
    taken_ -= bytes;
}

bool MetadataRoom::TryTakeForLogs(uint64_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    const bool there = taken_for_logs_ + bytes <= for_logs_;
    taken_for_logs_ += there ? bytes : 0;
    return there;
}

void MetadataRoom::GiveForLogs(uint64_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    RAWDUCK_INVARIANT(bytes <= taken_for_logs_, "no more room for logs is given back than was taken");
    taken_for_logs_ -= bytes;
}

uint64_t MetadataRoom::Taken() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return taken_;
}

void FileMetadata::Begin(uint64_t bytes) {
    room_.Take(bytes, MetadataUse::CREATE);
    held_ = bytes;
}

void FileMetadata::BeginLog(uint64_t bytes) {
    if (!TryExtendLog(bytes)) {
        Begin(bytes); // says why not
    }
}

void FileMetadata::BeginFound(uint64_t bytes) {
    room_.TakeFound(bytes);
    held_ = published_ = bytes;
}

// Entirely from one part or the other, the same after a mount as before it.
bool FileMetadata::TryExtendLog(uint64_t bytes) {
    if (room_.TryTakeForLogs(held_ + bytes)) {
        room_.Give(held_);
        held_ += bytes;
        for_logs_ = held_;
        return true;
    }
    const bool taken = room_.TryTake(bytes, MetadataUse::CREATE);
    held_ += taken ? bytes : 0;
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

void FileMetadata::Take(uint64_t bytes, MetadataUse use) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!retired_) {
        room_.Take(bytes, use);
        held_ += bytes;
        under_way_ += bytes;
    }
}

void FileMetadata::Settle(uint64_t taken, uint64_t now) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (retired_) {
        return;
    }
    RAWDUCK_INVARIANT(taken <= under_way_, "a change gives back what it took");
    under_way_ -= taken;
    const uint64_t needed = std::max(now, published_);
    RAWDUCK_INVARIANT(needed <= held_, "room for metadata is set aside before it is needed");
    if (held_ > needed + under_way_) {
        Give(held_ - needed - under_way_);
    }
}

void FileMetadata::Published(uint64_t now) {
    {
        std::lock_guard<std::mutex> guard(mutex_);
        published_ = now;
    }
    Settle(0, now);
}

void FileMetadata::GiveBack(uint64_t taken) {
    std::lock_guard<std::mutex> guard(mutex_);
    Give(taken);
    under_way_ -= taken;
}

void FileMetadata::Renamed(uint64_t taken, uint64_t length_before, uint64_t length) {
    std::lock_guard<std::mutex> guard(mutex_);
    Give(length_before - std::min(length_before, length));
    under_way_ -= taken;
    published_ = published_ - length_before + length;
}

void FileMetadata::Retire() {
    std::lock_guard<std::mutex> guard(mutex_);
    Give(held_);
    under_way_ = 0;
    retired_ = true;
}

} // namespace rawduck
