#include "volume/volume_image.hpp"

#include "common/aligned_buffer.hpp"
#include "common/error.hpp"
#include "volume/format/crc32c.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

//! A mount reads at most this much log, so that it stays fast; a longer log is cut short by a new snapshot.
constexpr uint64_t LOG_BYTES_MAX = 16 * MIB;
//! How far behind the end of the log a whole record is searched for, to tell damage from a torn tail: a torn
//! record is never longer than RECORD_BYTES_MAX.
constexpr uint64_t LOOK_AHEAD_BYTES = 2 * RECORD_BYTES_MAX;

SuperblockState ReadSuperblock(BlockIo &io, uint64_t device_offset, Superblock &superblock,
                               bool &unsupported) {
    AlignedBuffer buffer(UNIT_SIZE);
    io.Read(device_offset, buffer.Data(), UNIT_SIZE);
    memcpy(&superblock, buffer.Data(), sizeof(superblock));
    SuperblockState state;
    state.problem = ExamineSuperblock(superblock, io.Caps().capacity_bytes, unsupported);
    state.valid = state.problem.empty();
    return state;
}

[[noreturn]] void ThrowUnreadable(const VolumeImage &image, bool unsupported,
                                  const std::string &target_name) {
    const std::string &first = image.copies[0].problem;
    const std::string &second = image.copies[1].problem;
    if (unsupported) {
        throw Error(ErrorCode::UNSUPPORTED, target_name + ": cannot mount this volume: " + first);
    }
    if (first == "no rawduck superblock" && second == first) {
        throw Error(ErrorCode::INVALID, target_name +
                                            " is not a rawduck volume; make it one with `rawduck format " +
                                            target_name + "` or nvme_format('" + target_name + "')");
    }
    throw Error(ErrorCode::CORRUPT, target_name + ": both superblocks are damaged (superblock 0: " + first +
                                        "; superblock 1: " + second +
                                        "); nothing was changed. Restore the volume from a backup");
}

void ChooseSuperblock(BlockIo &io, const std::string &target_name, VolumeImage &image) {
    const uint64_t capacity = io.Caps().capacity_bytes;
    if (capacity < MIN_VOLUME_BYTES) {
        throw Error(ErrorCode::INVALID, target_name + " is not a rawduck volume: it has only " +
                                            std::to_string(capacity) +
                                            " bytes, and a volume has at least 16 MiB");
    }
    Superblock copies[2];
    bool unsupported[2] = {false, false};
    image.copies[0] = ReadSuperblock(io, 0, copies[0], unsupported[0]);
    const uint64_t units = image.copies[0].valid ? copies[0].capacity_units : capacity / UNIT_SIZE;
    image.copies[1] = ReadSuperblock(io, (units - 1) * UNIT_SIZE, copies[1], unsupported[1]);
    if (!image.copies[0].valid && !image.copies[1].valid) {
        ThrowUnreadable(image, unsupported[0], target_name);
    }
    int chosen = image.copies[0].valid ? 0 : 1;
    if (image.copies[0].valid && image.copies[1].valid) {
        if (copies[0].uuid != copies[1].uuid) {
            // Left by formatting that was interrupted after superblock 0 was written.
            image.copies[1] = {false, "it belongs to another volume"};
        } else if (copies[1].generation > copies[0].generation) {
            chosen = 1;
        }
    }
    image.superblock = copies[chosen];
    for (int i = 0; i < 2; i++) {
        if (!image.copies[i].valid) {
            image.warning = "superblock " + std::to_string(i) + " is damaged (" + image.copies[i].problem +
                            "); the other one is in use, and the next write repairs it";
        }
    }
}

void LoadSnapshot(BlockIo &io, const std::string &target_name, VolumeImage &image) {
    const Superblock &sb = image.superblock;
    image.catalog = std::make_unique<Catalog>(sb.lba_size, Unit{sb.data_start}, Unit{sb.data_end});
    if (sb.snapshot_bytes == 0) {
        return;
    }
    AlignedBuffer buffer(AlignUp(sb.snapshot_bytes, UNIT_SIZE));
    io.Read(sb.metadata_start[sb.active_area] * UNIT_SIZE, buffer.Data(), buffer.Size());
    std::vector<Item> items;
    std::string problem;
    bool whole = Crc32c(0, buffer.Data(), sb.snapshot_bytes) == sb.snapshot_crc;
    if (!whole) {
        problem = "its checksum is wrong";
    }
    whole = whole && ParseItems(buffer.Data(), sb.snapshot_bytes, items, problem);
    for (size_t i = 0; whole && i < items.size(); i++) {
        whole = image.catalog->Apply(items[i], problem);
    }
    if (!whole) {
        throw Error(ErrorCode::CORRUPT, target_name + ": the metadata snapshot of epoch " +
                                            std::to_string(sb.epoch) + " is damaged (" + problem +
                                            "); nothing was changed. Restore the volume from a backup");
    }
}

//! Walks the log record by record, reading ahead in large pieces.
class LogReader {
  public:
    LogReader(BlockIo &io, const Superblock &sb) : io_(io), sb_(sb), start_(LogStart(sb)), end_(LogEnd(sb)) {}

    //! The bytes at `position` (relative to the start of the log), at least one record long where the log is.
    const char *At(uint64_t position, uint64_t &available) {
        if (position + RECORD_BYTES_MAX > filled_ && start_ + filled_ < end_) {
            const uint64_t wanted = std::min(end_ - start_, position + 2 * RECORD_BYTES_MAX);
            const uint64_t from = filled_;
            buffer_.Resize(wanted);
            io_.Read(start_ + from, buffer_.Data() + from, wanted - from);
            filled_ = wanted;
        }
        available = position < filled_ ? filled_ - position : 0;
        return buffer_.Data() + position;
    }

    //! Does a whole record of this epoch lie behind `position`?
    bool RecordBehind(uint64_t position) {
        const uint64_t limit = std::min(end_ - start_, position + LOOK_AHEAD_BYTES);
        RecordHeader header;
        for (uint64_t at = position + sb_.lba_size; at < limit; at += sb_.lba_size) {
            uint64_t available = 0;
            const char *data = At(at, available);
            if (CheckRecord(sb_.uuid, sb_.epoch, data, available, header)) {
                return true;
            }
        }
        return false;
    }

  private:
    BlockIo &io_;
    const Superblock &sb_;
    uint64_t start_, end_, filled_ = 0;
    AlignedBuffer buffer_;
};

bool DataMatches(BlockIo &io, const Superblock &sb, const std::vector<Item> &items) {
    for (const Item &item : items) {
        for (const Verify &range : item.verify) {
            const bool sane =
                IsAligned(range.device_offset, sb.lba_size) && IsAligned(range.length, sb.lba_size) &&
                range.device_offset >= sb.data_start * UNIT_SIZE && range.length <= RECORD_BYTES_MAX &&
                range.device_offset + range.length <= sb.data_end * UNIT_SIZE;
            if (!sane) {
                return false;
            }
            AlignedBuffer buffer(range.length);
            io.Read(range.device_offset, buffer.Data(), range.length);
            if (Crc32c(0, buffer.Data(), range.length) != range.crc) {
                return false;
            }
        }
    }
    return true;
}

bool ApplyAll(Catalog &catalog, const std::vector<Item> &items, std::string &problem) {
    for (const Item &item : items) {
        if (!catalog.Apply(item, problem)) {
            return false;
        }
    }
    return true;
}

// A record that has a successor was durable, with the data it publishes, before the successor was written.
// Only the last one has to show that its data arrived.
void ReplayLog(BlockIo &io, VolumeImage &image) {
    const Superblock &sb = image.superblock;
    LogReader log(io, sb);
    std::vector<Item> previous;
    uint64_t previous_bytes = 0, position = 0;
    const auto accept = [&]() {
        std::string problem;
        if (!ApplyAll(*image.catalog, previous, problem)) {
            image.damage = "log record " + std::to_string(image.log_records + 1) + ": " + problem;
            return false;
        }
        image.log_records += previous_bytes > 0 ? 1 : 0;
        image.log_bytes += previous_bytes;
        return true;
    };
    for (;;) {
        uint64_t available = 0;
        const char *data = log.At(position, available);
        RecordHeader header;
        if (!CheckRecord(sb.uuid, sb.epoch, data, available, header)) {
            break;
        }
        if (!accept()) {
            return;
        }
        previous.clear();
        previous_bytes = 0;
        std::string problem;
        const bool in_order = header.sequence == image.log_records + 1;
        if (!in_order || !ParseItems(data + sizeof(header), header.payload_bytes, previous, problem)) {
            image.damage = "log record " + std::to_string(image.log_records + 1) +
                           (in_order ? ": " + problem : " is out of order");
            return;
        }
        previous_bytes = RecordFootprint(header.payload_bytes, sb.lba_size);
        position += previous_bytes;
    }
    if (log.RecordBehind(position)) {
        image.damage = "log record " + std::to_string(image.log_records + 1 + (previous_bytes > 0 ? 1 : 0)) +
                       " is damaged, and whole records lie behind it";
    }
    if (image.damage.empty() && !DataMatches(io, sb, previous)) {
        image.torn_tail = true;
        return;
    }
    accept();
}

} // namespace

uint64_t LogStart(const Superblock &sb) {
    return sb.metadata_start[sb.active_area] * UNIT_SIZE + AlignUp(sb.snapshot_bytes, UNIT_SIZE);
}

uint64_t LogEnd(const Superblock &sb) {
    const uint64_t area_end = (sb.metadata_start[sb.active_area] + sb.metadata_units) * UNIT_SIZE;
    return std::min(area_end, LogStart(sb) + LOG_BYTES_MAX);
}

VolumeImage LoadVolumeImage(BlockIo &io, const std::string &target_name) {
    VolumeImage image;
    ChooseSuperblock(io, target_name, image);
    if (image.superblock.lba_size % io.Caps().lba_size != 0) {
        throw Error(ErrorCode::UNSUPPORTED, target_name + ": the volume has LBAs of " +
                                                std::to_string(image.superblock.lba_size) +
                                                " bytes, but the target takes I/O only in multiples of " +
                                                std::to_string(io.Caps().lba_size) +
                                                "; move the image to a target with LBAs of 512 bytes");
    }
    LoadSnapshot(io, target_name, image);
    ReplayLog(io, image);
    const std::vector<std::string> problems = image.catalog->Verify();
    if (!problems.empty() && image.damage.empty()) {
        image.damage = problems.front();
    }
    return image;
}

} // namespace rawduck
