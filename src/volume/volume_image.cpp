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
    image.superblock_copy = chosen;
    image.copies_agree =
        image.copies[0].valid && image.copies[1].valid && copies[0].generation == copies[1].generation;
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

//! Walks the log through a window that slides forward, so that mounting reads little more than the log is
//! long and needs memory for one read and one record.
class LogReader {
  public:
    LogReader(BlockIo &io, const Superblock &sb)
        : io_(io), sb_(sb), start_(LogStart(sb)), bytes_(LogEnd(sb) - start_) {}

    //! Is there a whole record of this epoch at `position`, in bytes from the start of the log? If so,
    //! `header` is filled and `payload` is valid until the next call. Positions never decrease.
    bool RecordAt(uint64_t position, RecordHeader &header, const char *&payload) {
        const char *data = Load(position, sizeof(RecordHeader));
        const uint64_t claimed = ClaimedRecordBytes(sb_.epoch, data, Available(position));
        if (claimed == 0 || claimed > RECORD_BYTES_MAX) {
            return false;
        }
        data = Load(position, claimed);
        payload = data + sizeof(RecordHeader);
        return CheckRecord(sb_.uuid, sb_.epoch, data, Available(position), header);
    }

    //! Does a whole record of this epoch lie behind the one, damaged or torn, at `position`? That one is
    //! never longer than RECORD_BYTES_MAX, so the search ends there.
    bool RecordBehind(uint64_t position) {
        const uint64_t limit = std::min(bytes_, position + RECORD_BYTES_MAX + 1);
        RecordHeader header;
        const char *payload = nullptr;
        for (uint64_t at = position + sb_.lba_size; at < limit; at += sb_.lba_size) {
            if (RecordAt(at, header, payload)) {
                return true;
            }
        }
        return false;
    }

  private:
    uint64_t Available(uint64_t position) const { return position < filled_ ? filled_ - position : 0; }

    //! Moves the window so that it holds `length` bytes at `position`, or what the log has of them.
    const char *Load(uint64_t position, uint64_t length) {
        const uint64_t wanted = std::min(bytes_, position + length);
        if (wanted > filled_) {
            const uint64_t keep_from = std::min(AlignDown(position, UNIT_SIZE), filled_);
            window_.DropFront(keep_from - window_start_);
            window_start_ = keep_from;
            const uint64_t until =
                std::min(bytes_, std::max(AlignUp(wanted, UNIT_SIZE), filled_ + read_bytes_));
            const uint64_t kept = window_.Size();
            window_.Resize(until - window_start_);
            io_.Read(start_ + filled_, window_.Data() + kept, until - filled_);
            filled_ = until;
            read_bytes_ = std::min(2 * read_bytes_, READ_BYTES_MAX);
        }
        return window_.Data() + (position - window_start_);
    }

    //! A short log costs one short read, a long one is read in pieces that keep a device busy.
    static constexpr uint64_t READ_BYTES_FIRST = 128 * KIB, READ_BYTES_MAX = 4 * MIB;

    BlockIo &io_;
    const Superblock &sb_;
    const uint64_t start_, bytes_; //!< of the log: where it begins on the target, and its greatest length
    uint64_t window_start_ = 0, filled_ = 0, read_bytes_ = READ_BYTES_FIRST;
    AlignedBuffer window_;
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
        RecordHeader header;
        const char *payload = nullptr;
        if (!log.RecordAt(position, header, payload)) {
            break;
        }
        if (!accept()) {
            return;
        }
        previous.clear();
        previous_bytes = 0;
        std::string problem;
        const bool in_order = header.sequence == image.log_records + 1;
        if (!in_order || !ParseItems(payload, header.payload_bytes, previous, problem)) {
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
    if (accept()) {
        for (const Item &item : previous) {
            image.last_verify.insert(image.last_verify.end(), item.verify.begin(), item.verify.end());
        }
    }
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
