#include "volume/log/load_image.hpp"

#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "common/memory/aligned_buffer.hpp"
#include "volume/log/choose_superblock.hpp"
#include "volume/log/log_reader.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

[[noreturn]] void ThrowSnapshot(const Superblock &sb, const std::string &target_name,
                                const std::string &problem) {
    throw Error(ErrorCode::CORRUPT, target_name + ": the metadata snapshot of epoch " +
                                        std::to_string(sb.epoch) + " " + problem +
                                        "; nothing was changed. Restore the volume from a backup");
}

void LoadSnapshot(BlockIo &io, const std::string &target_name, VolumeImage &image) {
    const Superblock &sb = image.superblock;
    image.catalog =
        std::make_unique<Catalog>(sb.lba_size, AllocationUnit{sb.data_start}, AllocationUnit{sb.data_end});
    if (sb.snapshot_bytes == 0) {
        return;
    }
    AlignedBuffer buffer(AlignUp(sb.snapshot_bytes, ALLOCATION_UNIT_BYTES));
    const uint64_t start = sb.metadata_start[sb.active_area] * ALLOCATION_UNIT_BYTES;
    UnreadableLbas unreadable;
    ReadAround(io, start, buffer.Data(), buffer.Size(), unreadable);
    std::string problem = ErrorWithin(unreadable, start, sb.snapshot_bytes);
    if (!problem.empty()) {
        ThrowSnapshot(sb, target_name,
                      "cannot be read (" + problem + "). Try again, the device may only have been disturbed");
    }
    std::vector<Item> items;
    bool whole = Crc32c(0, buffer.Data(), sb.snapshot_bytes) == sb.snapshot_crc;
    if (!whole) {
        problem = "its checksum is wrong";
    }
    whole = whole && ParseItems(buffer.Data(), sb.snapshot_bytes, items, problem);
    for (size_t i = 0; whole && i < items.size(); i++) {
        whole = image.catalog->Apply(items[i], problem);
    }
    if (!whole) {
        ThrowSnapshot(sb, target_name, "is damaged (" + problem + ")");
    }
}

bool ApplyAll(Catalog &catalog, const std::vector<Item> &items, std::string &problem) {
    for (const Item &item : items) {
        if (!catalog.Apply(item, problem)) {
            return false;
        }
    }
    return true;
}

//! The file that has this byte of the target once the items are applied, in words.
std::string FileAt(const VolumeImage &image, const std::vector<Item> &items, uint64_t device_offset) {
    Catalog catalog = *image.catalog;
    std::string problem;
    ApplyAll(catalog, items, problem);
    const uint64_t unit = device_offset / ALLOCATION_UNIT_BYTES;
    for (const auto &[id, entry] : catalog.Entries()) {
        for (const Extent &extent : entry.extents) {
            if (unit >= extent.start && unit - extent.start < extent.units) {
                return "file " + entry.name;
            }
        }
    }
    return "a removed file";
}

constexpr const char *UNDECIDED = ", so nobody can tell whether it was finished and acknowledged. When the "
                                  "device can read it again, the volume is sound";

//! Applies one record after the other to the image, each once it is known to have been durable.
class LogReplay {
  public:
    LogReplay(BlockIo &io, VolumeImage &image)
        : io_(io), image_(image), sb_(image.superblock),
          log_(io, sb_.uuid, sb_.lba_size, LogStart(sb_), LogEnd(sb_) - LogStart(sb_)) {}

    // A record that has a successor was durable, with the data it publishes, before the successor was
    // written. Only the last one has to show that its data arrived.
    void Run() {
        RecordHeader header;
        const char *payload = nullptr;
        while (log_.RecordAt(position_, sb_.epoch, header, payload)) {
            if (!AcceptPrevious() || !Take(header, payload)) {
                return;
            }
        }
        const std::string error = log_.ErrorAt(position_, sb_.epoch);
        if (const uint64_t behind = log_.RecordBehind(position_, sb_.epoch)) {
            image_.damage = Name(true) + (error.empty() ? " is damaged" : " cannot be read (" + error + ")") +
                            ", and whole records lie behind it";
            AcceptPrevious();
            FindOverwritten(behind);
            return;
        }
        if (!error.empty()) {
            image_.damage = Name(true) + ", if there was one, cannot be read (" + error + ")" + UNDECIDED;
        }
        AcceptLast();
    }

  private:
    bool AcceptPrevious() {
        std::string problem;
        if (!ApplyAll(*image_.catalog, previous_, problem)) {
            image_.damage = Name(false) + ": " + problem;
            return false;
        }
        image_.log_records += previous_bytes_ > 0 ? 1 : 0;
        image_.log_bytes += previous_bytes_;
        return true;
    }

    // Space that was allocated to files since, and space of what was truncated or removed, which is
    // overwritten in place.
    void FindOverwritten(uint64_t position) {
        for (const Item &item : log_.ItemsFrom(position, sb_.epoch)) {
            AddOverwritten(item.extents);
            AddCut(item.replaced_id, 0);
            if (item.type == ItemType::REMOVE) {
                AddCut(item.file_id, 0);
            } else if (item.type == ItemType::TRUNCATE) {
                AddCut(item.file_id, item.size);
            } else if (item.type == ItemType::SIZE) {
                // A smaller one: it was cut before, to a length that is not known.
                const auto found = image_.catalog->Entries().find(item.file_id);
                if (found != image_.catalog->Entries().end() && item.size < found->second.size) {
                    AddCut(item.file_id, 0);
                }
            }
        }
    }

    void AddOverwritten(const std::vector<Extent> &extents) {
        image_.overwritten.insert(image_.overwritten.end(), extents.begin(), extents.end());
    }

    //! What a file had from `size` on.
    void AddCut(uint64_t file_id, uint64_t size) {
        const auto found = image_.catalog->Entries().find(file_id);
        if (found == image_.catalog->Entries().end()) {
            return;
        }
        uint64_t kept = size / ALLOCATION_UNIT_BYTES;
        for (const Extent &extent : found->second.extents) {
            const uint64_t skipped = std::min(kept, extent.units);
            kept -= skipped;
            if (skipped < extent.units) {
                AddOverwritten(
                    {{extent.file_unit + skipped, extent.start + skipped, extent.units - skipped}});
            }
        }
    }

    bool Take(const RecordHeader &header, const char *payload) {
        previous_.clear();
        previous_bytes_ = 0;
        std::string problem;
        const bool in_order = header.sequence == image_.log_records + 1;
        if (!in_order || !ParseItems(payload, header.payload_bytes, previous_, problem)) {
            image_.damage = "log record " + std::to_string(image_.log_records + 1) +
                            (in_order ? ": " + problem : " is out of order");
            return false;
        }
        previous_bytes_ = RecordFootprint(header.payload_bytes, sb_.lba_size);
        position_ += previous_bytes_;
        return true;
    }

    //! "log record 5": the one that was read last, or the one behind it.
    std::string Name(bool behind) const {
        const uint64_t last = image_.log_records + (previous_bytes_ > 0 ? 1 : 0);
        return "log record " + std::to_string(last + (behind ? 1 : 0));
    }

    // Behind the last record the log may also be unreadable: then the record counts if its data is there.
    void AcceptLast() {
        UnreadableLbas unreadable;
        const DataState state =
            ExamineData(io_, {sb_.lba_size, sb_.data_start, sb_.data_end}, previous_, unreadable);
        if (state == DataState::WHOLE && AcceptPrevious()) {
            for (const Item &item : previous_) {
                image_.last_checksums.insert(image_.last_checksums.end(), item.checksums.begin(),
                                             item.checksums.end());
            }
        }
        image_.torn_tail = state == DataState::TORN;
        if (state == DataState::UNREADABLE && image_.damage.empty()) {
            const auto &[offset, error] = *unreadable.begin();
            image_.damage = Name(false) + ", the last one, vouches for data of " +
                            FileAt(image_, previous_, offset) + " that cannot be read (" + error + ")" +
                            UNDECIDED;
        }
    }

    BlockIo &io_;
    VolumeImage &image_;
    const Superblock &sb_;
    LogReader log_;
    std::vector<Item> previous_;
    uint64_t previous_bytes_ = 0, position_ = 0;
};

} // namespace

VolumeImage LoadVolumeImage(BlockIo &io, const std::string &target_name) {
    VolumeImage image;
    const std::string contradiction = ChooseSuperblock(io, target_name, image);
    if (image.superblock.lba_size % io.Caps().lba_size != 0) {
        throw Error(ErrorCode::UNSUPPORTED, target_name + ": the volume has LBAs of " +
                                                std::to_string(image.superblock.lba_size) +
                                                " bytes, but the target takes I/O only in multiples of " +
                                                std::to_string(io.Caps().lba_size) +
                                                "; move the image to a target with LBAs of 512 bytes");
    }
    LoadSnapshot(io, target_name, image);
    LogReplay(io, image).Run();
    const std::vector<std::string> problems = image.catalog->FindProblems();
    if (!problems.empty() && image.damage.empty()) {
        image.damage = problems.front();
    }
    if (!contradiction.empty()) { // whatever the log says, it may be that of the wrong epoch
        image.damage = contradiction;
        image.damage_place = "superblocks";
    }
    for (int i = 0; i < 2; i++) {
        if (!image.copies[i].valid) {
            image.warning = "superblock " + std::to_string(i) + " is damaged (" + image.copies[i].problem +
                            "); the other one is in use" +
                            (image.damage.empty() ? ", and the next write repairs it" : "");
        }
    }
    return image;
}

// Whoever mounts a volume to write begins a new epoch, and both superblocks are durable before anything of it
// is acknowledged. Whoever had one going on appends to its log.
bool IsUnchanged(BlockIo &io, const std::string &target_name, const Superblock &superblock,
                 uint64_t log_bytes) {
    VolumeImage now;
    if (!ChooseSuperblock(io, target_name, now).empty() ||
        memcmp(&now.superblock, &superblock, sizeof superblock) != 0) {
        return false;
    }
    const uint64_t end = LogStart(superblock) + log_bytes;
    LogReader behind(io, superblock.uuid, superblock.lba_size, end, LogEnd(superblock) - end);
    RecordHeader header;
    const char *payload = nullptr;
    // A whole record there may be one whose data never arrived: then it does not count.
    return !behind.RecordAt(0, superblock.epoch, header, payload) ||
           LoadVolumeImage(io, target_name).log_bytes == log_bytes;
}

} // namespace rawduck
