//! A writing mount begins an epoch: it writes a snapshot, then the copy that it did not go by, then the other
//! one, and makes each durable before the next step. Nothing of the epoch is acknowledged before both copies
//! name it, and only then its first log record is written (MetadataLog::StartEpoch). Repair does the same and
//! nothing else. Hence what a mount concludes from the two copies, in either order:
//!
// clang-format off
//!     copies                       how that came about              goes by    lost               writing
//!     ---------------------------  -------------------------------  ---------  -----------------  ----------------
//!     valid, valid: the same       nothing special                  both       nothing            yes
//!     valid, valid: one is newer   the power went between the two   the newer  nothing            yes
//!                                  writes, or the second failed
//!     valid, damaged: no record    the power went in the write of   the valid  nothing that was   yes, leaving out
//!     of a later epoch             the damaged one, or it was                  acknowledged       the epoch that it
//!                                  damaged since                                                  may have begun
//!     valid, damaged: records of   the device lost a durable write  the valid  what that epoch    no: an error
//!     a later epoch lie in the     of the one, and the other was               acknowledged
//!     area it does not name        damaged
//!     valid, valid: of one         never written like that          the later  unknown            no: an error
//!     generation, and differ                                        epoch
//!     valid, valid: two volumes    copying one volume over another  copy 0     unknown            no: an error
//!                                  was cut short
//!     any, newer format            an upgrade was cut short         none       nothing            refused
//!     damaged, damaged             more than one thing failed       none       everything         refused
// clang-format on
//!
//! Damaged is: cannot be read, a wrong checksum, or a layout that this target cannot have. Formatting wipes
//! copy 1, writes copy 0 and writes copy 1, each durable before the next: what it leaves when the power goes
//! is valid and damaged. What is in the newer of two copies that differ was not acknowledged, so it may be
//! there or not: damage to that copy before the next write goes back to the older one.
#include "volume/log/choose_superblock.hpp"

#include "common/error.hpp"
#include "common/memory/aligned_buffer.hpp"
#include "volume/log/log_reader.hpp"

#include <cstring>

namespace rawduck {

namespace {

constexpr const char *NO_SUPERBLOCK = "no rawduck superblock";

struct Copy {
    Superblock superblock{};
    SuperblockState state;
    bool unsupported = false;
    bool unreadable = false;
};

Copy ReadCopy(BlockIo &io, uint64_t unit) {
    Copy copy;
    AlignedBuffer buffer(ALLOCATION_UNIT_BYTES);
    try {
        io.Read(unit * ALLOCATION_UNIT_BYTES, buffer.Data(), ALLOCATION_UNIT_BYTES);
    } catch (const Error &error) {
        if (error.Code() != ErrorCode::IO) {
            throw;
        }
        copy.unreadable = true;
        copy.state.problem = std::string("it cannot be read: ") + error.what();
        return copy;
    }
    memcpy(&copy.superblock, buffer.Data(), sizeof(copy.superblock));
    copy.state.problem = ExamineSuperblock(copy.superblock, io.Caps().capacity_bytes, copy.unsupported);
    copy.state.valid = copy.state.problem.empty();
    copy.state.epoch = copy.state.valid ? copy.superblock.epoch : 0;
    return copy;
}

//! A newer rawduck knows what its own copy means, and what it would lose.
void RefuseNewer(const Copy &copy, const std::string &target_name) {
    if (copy.unsupported) {
        throw Error(ErrorCode::UNSUPPORTED,
                    target_name + ": cannot mount this volume: " + copy.state.problem);
    }
}

[[noreturn]] void ThrowNoneValid(const Copy &first, const Copy &second, const std::string &target_name) {
    const std::string both =
        " (superblock 0: " + first.state.problem + "; superblock 1: " + second.state.problem + ")";
    if (first.unreadable || second.unreadable) {
        throw Error(ErrorCode::IO, target_name + ": no superblock can be used" + both +
                                       "; nothing was changed. Try again, the device may only have been "
                                       "disturbed; otherwise restore the volume from a backup");
    }
    if (first.state.problem == NO_SUPERBLOCK && second.state.problem == NO_SUPERBLOCK) {
        throw Error(ErrorCode::INVALID, target_name +
                                            " is not a rawduck volume; make it one with `rawduck format " +
                                            target_name + "` or nvme_format('" + target_name + "')");
    }
    throw Error(ErrorCode::CORRUPT, target_name + ": both superblocks are damaged" + both +
                                        "; nothing was changed. Restore the volume from a backup");
}

//! Of the first record that a later epoch than the superblock's has left; 0 when there is none. Such an epoch
//! began in the area that the superblock does not name.
uint64_t LaterEpoch(BlockIo &io, const Superblock &sb) {
    const uint64_t start = sb.metadata_start[1 - sb.active_area] * ALLOCATION_UNIT_BYTES;
    return LogReader(io, sb.uuid, sb.lba_size, start, sb.metadata_units * ALLOCATION_UNIT_BYTES)
        .LaterEpoch(sb.epoch);
}

std::string OldCopyText(int chosen, const Copy &damaged, uint64_t epoch, uint64_t later_epoch) {
    const std::string used = std::to_string(chosen), other = std::to_string(1 - chosen);
    return "superblock " + other + " is damaged (" + damaged.state.problem + "), and superblock " + used +
           " is old: it names epoch " + std::to_string(epoch) + ", and there are log records of epoch " +
           std::to_string(later_epoch) + ". What was committed in that is lost";
}

} // namespace

std::string ChooseSuperblock(BlockIo &io, const std::string &target_name, VolumeImage &image) {
    const uint64_t capacity = io.Caps().capacity_bytes;
    if (capacity < MIN_VOLUME_BYTES) {
        throw Error(ErrorCode::INVALID, target_name + " is not a rawduck volume: it has only " +
                                            std::to_string(capacity) +
                                            " bytes, and a volume has at least 16 MiB");
    }
    Copy copies[2];
    copies[0] = ReadCopy(io, 0);
    const uint64_t units =
        copies[0].state.valid ? copies[0].superblock.capacity_units : capacity / ALLOCATION_UNIT_BYTES;
    copies[1] = ReadCopy(io, units - 1);
    RefuseNewer(copies[0], target_name);
    RefuseNewer(copies[1], target_name);
    const Superblock &first = copies[0].superblock, &second = copies[1].superblock;
    std::string contradiction;
    int chosen = copies[0].state.valid ? 0 : 1;
    if (!copies[0].state.valid && !copies[1].state.valid) {
        ThrowNoneValid(copies[0], copies[1], target_name);
    } else if (copies[0].state.valid != copies[1].state.valid) {
        const uint64_t epoch = copies[chosen].superblock.epoch;
        const uint64_t later_epoch = LaterEpoch(io, copies[chosen].superblock);
        contradiction = later_epoch == 0 ? "" : OldCopyText(chosen, copies[1 - chosen], epoch, later_epoch);
    } else if (first.uuid != second.uuid) {
        copies[1].state = {false, "it belongs to another volume", 0};
        contradiction = "the superblocks belong to two volumes, " + UuidText(first.uuid) + " and " +
                        UuidText(second.uuid) + "; if one is being copied over the other, copy it again";
    } else if (first.generation != second.generation) {
        chosen = second.generation > first.generation ? 1 : 0;
    } else if (memcmp(&first, &second, sizeof(first)) != 0) {
        chosen = second.epoch > first.epoch ? 1 : 0;
        contradiction = "the superblocks are of the same generation and contradict each other";
    }
    image.superblock = copies[chosen].superblock;
    image.superblock_copy = chosen;
    image.copies[0] = copies[0].state;
    image.copies[1] = copies[1].state;
    image.copies_agree = contradiction.empty() && copies[0].state.valid && copies[1].state.valid &&
                         first.generation == second.generation;
    return contradiction;
}

} // namespace rawduck
