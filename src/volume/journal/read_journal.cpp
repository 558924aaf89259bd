#include "volume/journal/read_journal.hpp"

#include "volume/journal/choose_tree_superblock.hpp"
#include "volume/log/log_reader.hpp"

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
        const uint64_t epoch = log.EpochAt(0);
        RecordHeader header;
        const char *payload = nullptr;
        if (epoch <= epoch_) {
            const std::string error = log.ErrorAt(0, epoch);
            if (!error.empty()) {
                image_.damage =
                    "the place where the log would go on cannot be read (" + error + ")" + UNDECIDED;
            }
            return false;
        }
        if (!log.RecordAt(0, epoch, header, payload) || header.before.epoch != epoch_) {
            return false; // RefuseLaterEpochs tells
        }
        if (has_last_ && header.before.bytes == position_ - last_bytes_) {
            DropLast(); // whoever began that epoch found the data of this record torn
        }
        if (header.before.bytes != position_) {
            image_.damage =
                Name() + " is damaged, and the log goes on behind it in epoch " + EpochText(epoch);
            AcceptPrevious();
            return false;
        }
        Begin(epoch, area);
        return true;
    }

    // A later epoch than the last of the chain was begun by somebody who relied on a later superblock.
    void RefuseLaterEpochs() {
        for (uint32_t area = 0; area < 2 && image_.damage.empty(); area++) {
            const uint64_t epoch = Reader(area).EpochAt(0);
            if (epoch > epoch_) {
                image_.damage = "the superblock is old: it names epoch " + EpochText(sb_.epoch) +
                                ", and there are log records of epoch " + EpochText(epoch) +
                                ". What was committed in that is lost";
            }
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
    LogChain(io, image).Run();
    if (!contradiction.empty()) { // whatever the log says, it may be that of the wrong epoch
        image.damage = contradiction;
    }
    return image;
}

} // namespace rawduck
