#include "volume/journal/read_journal.hpp"

#include "common/error.hpp"
#include "volume/journal/choose_tree_superblock.hpp"
#include "volume/journal/log_reader.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace rawduck {

namespace {

constexpr const char *UNDECIDED = ", so nobody can tell whether it was finished and acknowledged. When the "
                                  "device can read it again, the volume is sound";

//! Follows the log from the epoch of the superblock on. A record counts once it is known to have been durable: when
//! another comes after it, or, for the last one, when the data that it vouches for is there.
class LogChain {
  public:
    LogChain(BlockIo &io, JournalImage &image) : io_(io), image_(image), sb_(image.superblock) {}

    void Run() {
        Begin(sb_.epoch, sb_.log_area);
        bool goes_on = ReadPart();
        if (goes_on && FindNextPart()) {
            goes_on = ReadPart();
        }
        if (goes_on) {
            RefuseLaterEpochs();
        }
        if (!image_.damage.empty()) {
            CollectLost();
        }
        if (has_last_) {
            AcceptLast();
        }
        if (image_.log.back().records == 0 && image_.log.size() > 1) {
            image_.log.pop_back(); // its first record is torn
        }
    }

  private:
    LogReader Reader(uint32_t area) const {
        return LogReader(io_, sb_.uuid, sb_.lba_size, LogStart(sb_, area), LogBytes(sb_));
    }
    void Begin(uint64_t epoch, uint32_t area) {
        epoch_ = epoch;
        area_ = area;
        position_ = sequence_ = 0;
        image_.log.push_back({epoch, area, 0, 0});
    }
    std::string Name() const {
        return "log record " + std::to_string(sequence_ + 1) + " of epoch " + EpochText(epoch_);
    }
    static std::string EpochText(uint64_t epoch) {
        return std::to_string(MountOf(epoch)) + "." + std::to_string(epoch & UINT32_MAX);
    }

    //! Returns whether the log may go on in the other area.
    bool ReadPart() {
        LogReader log = Reader(area_);
        RecordHeader header;
        const char *payload = nullptr;
        while (log.RecordAt(position_, epoch_, header, payload)) {
            AcceptPrevious();
            std::string problem;
            const bool in_order = header.sequence == sequence_ + 1;
            if (!in_order || !ParseItems(payload, header.payload_bytes, last_, problem)) {
                image_.damage = Name() + (in_order ? ": " + problem : " is out of order");
                last_.clear();
                return false;
            }
            has_last_ = true;
            last_area_index_ = image_.log.size() - 1;
            last_bytes_ = RecordFootprint(header.payload_bytes, sb_.lba_size);
            position_ += last_bytes_;
            sequence_++;
        }
        const std::string error = log.ErrorAt(position_, epoch_);
        if (log.RecordBehind(position_, epoch_) != 0) {
            image_.damage = Name() + (error.empty() ? " is damaged" : " cannot be read (" + error + ")") +
                            ", and whole records lie behind it";
            AcceptPrevious(); // it has a successor, though not one that can be read
            return false;
        }
        if (!error.empty()) {
            image_.damage = Name() + ", if there was one, cannot be read (" + error + ")" + UNDECIDED;
            return false;
        }
        return true;
    }

    // The first record there names the end of the log that it continues.
    bool FindNextPart() {
        const uint32_t area = 1 - area_;
        LogReader log = Reader(area);
        const uint64_t claimed = log.ClaimedEpochAt(0);
        RecordHeader header;
        const char *payload = nullptr;
        if (claimed <= epoch_ || !log.RecordAt(0, claimed, header, payload)) {
            ExplainNoNextPart(log, claimed);
            return false;
        }
        if (header.before.epoch != epoch_) {
            return false; // RefuseLaterEpochs tells
        }
        if (has_last_ && header.before.bytes == position_ - last_bytes_) {
            DropLast(); // whoever began that epoch found the data of this record torn
        }
        if (header.before.bytes != position_ && Reader(area_).EpochAt(0) > epoch_) {
            return false; // nor is that the log of the superblock any more
        }
        if (header.before.bytes != position_) {
            image_.damage =
                Name() + " is damaged, and the log goes on behind it in epoch " + EpochText(claimed);
            AcceptPrevious();
            return false;
        }
        Begin(claimed, area);
        return true;
    }

    // Where the log would go on there is no whole record of a later epoch. It was never finished, unless the device
    // cannot read it or whole ones lie behind it.
    void ExplainNoNextPart(LogReader &log, uint64_t claimed) {
        const std::string error = log.ErrorAt(0, std::max(claimed, epoch_));
        const uint64_t later = log.LaterEpoch(epoch_, RECORD_BYTES_MAX);
        if (later != 0) {
            image_.damage = "the first log record of epoch " + EpochText(later) +
                            (error.empty() ? " is damaged" : " cannot be read (" + error + ")") +
                            ", and whole records lie behind it";
            AcceptPrevious();
        } else if (!error.empty()) {
            image_.damage = "the place where the log would go on cannot be read (" + error + ")" + UNDECIDED;
        }
    }

    // A later epoch than the last of the chain was begun by somebody who relied on a later superblock. Where both copies
    // are there, nobody has lost one.
    void RefuseLaterEpochs() {
        const bool both = image_.copies[0].valid && image_.copies[1].valid;
        for (uint32_t area = 0; area < 2 && image_.damage.empty(); area++) {
            LogReader log = Reader(area);
            const uint64_t epoch = both ? log.EpochAt(0) : log.LaterEpoch(epoch_, LogBytes(sb_));
            if (epoch > epoch_) {
                image_.damage = OldSuperblockText(epoch);
                image_.damage_place = "superblocks";
            }
        }
    }

    std::string OldSuperblockText(uint64_t epoch) const {
        const int used = image_.superblock_copy;
        const SuperblockCopy &other = image_.copies[1 - used];
        return (other.valid ? "the superblock"
                            : "superblock " + std::to_string(1 - used) + " is damaged (" + other.problem +
                                  "), and superblock " + std::to_string(used)) +
               " is old: it names epoch " + EpochText(sb_.epoch) + ", and there are log records of epoch " +
               EpochText(epoch) + ". What was committed in that is lost";
    }

    void CollectLost() {
        for (const uint32_t area : {area_, 1 - area_}) {
            const bool ended_here = area == area_;
            std::vector<Item> items =
                Reader(area).ItemsFrom(ended_here ? position_ : 0, epoch_ + (ended_here ? 0 : 1));
            image_.lost.insert(image_.lost.end(), std::make_move_iterator(items.begin()),
                               std::make_move_iterator(items.end()));
        }
    }

    void AcceptPrevious() {
        if (has_last_) {
            LogPart &part = image_.log[last_area_index_];
            part.bytes += last_bytes_;
            part.records++;
            image_.records.push_back(std::move(last_));
        }
        last_.clear();
        has_last_ = false;
    }

    void DropLast() {
        position_ -= last_bytes_;
        sequence_--;
        last_.clear();
        has_last_ = false;
    }

    void AcceptLast() {
        UnreadableLbas unreadable;
        const DataState state =
            ExamineData(io_, {sb_.lba_size, sb_.data_start, sb_.data_end}, last_, unreadable);
        if (state == DataState::WHOLE) {
            for (const Item &item : last_) {
                image_.last_checksums.insert(image_.last_checksums.end(), item.checksums.begin(),
                                             item.checksums.end());
            }
            AcceptPrevious();
        }
        image_.torn_tail = state == DataState::TORN;
        if (state == DataState::UNREADABLE && image_.damage.empty()) {
            image_.damage = "the last log record vouches for data that cannot be read (" +
                            unreadable.begin()->second + ")" + UNDECIDED;
            image_.undecided = std::move(last_);
            image_.undecided_offset = unreadable.begin()->first;
        }
    }

    BlockIo &io_;
    JournalImage &image_;
    const TreeSuperblock &sb_;
    uint64_t epoch_ = 0;
    uint32_t area_ = 0;
    uint64_t position_ = 0, sequence_ = 0; //!< behind the last record of the epoch
    std::vector<Item> last_;               //!< of the record that was read last
    bool has_last_ = false;
    size_t last_area_index_ = 0;
    uint64_t last_bytes_ = 0;
};

} // namespace

JournalImage ReadJournal(BlockIo &io) {
    JournalImage image;
    const std::string contradiction = ChooseTreeSuperblock(io, image);
    const uint32_t lba_size = image.superblock.lba_size;
    if (lba_size % io.Caps().lba_size != 0) {
        throw Error(ErrorCode::UNSUPPORTED, io.TargetName() + ": the volume has LBAs of " +
                                                std::to_string(lba_size) +
                                                " bytes, but the target takes I/O only in multiples of " +
                                                std::to_string(io.Caps().lba_size) +
                                                "; move the image to a target with LBAs of 512 bytes");
    }
    LogChain(io, image).Run();
    if (!contradiction.empty()) { // whatever the log says, it may be that of the wrong epoch
        image.damage = contradiction;
        image.damage_place = "superblocks";
    }
    return image;
}

// A mount counts itself in both superblocks before it writes anything else. One that has done so before may append to its
// epoch, or go on in the other area without a superblock that says so.
bool IsUnchanged(BlockIo &io, const TreeSuperblock &superblock, const LogPart &end) {
    JournalImage now;
    if (!ChooseTreeSuperblock(io, now).empty() ||
        memcmp(&now.superblock, &superblock, sizeof superblock) != 0) {
        return false;
    }
    const auto reader = [&](uint32_t area, uint64_t from) {
        return LogReader(io, superblock.uuid, superblock.lba_size, LogStart(superblock, area) + from,
                         LogBytes(superblock) - from);
    };
    LogReader behind = reader(end.area, end.bytes), other = reader(1 - end.area, 0);
    RecordHeader header;
    const char *payload = nullptr;
    if (!behind.RecordAt(0, end.epoch, header, payload) && other.EpochAt(0) <= end.epoch) {
        return true;
    }
    // A whole record there may be one whose data never arrived: then it does not count.
    const LogPart found = ReadJournal(io).log.back();
    return found.epoch == end.epoch ? found.bytes == end.bytes : found.epoch < end.epoch && end.bytes == 0;
}

} // namespace rawduck
