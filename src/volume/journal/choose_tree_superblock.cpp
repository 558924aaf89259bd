#include "volume/journal/choose_tree_superblock.hpp"

#include "common/error.hpp"
#include "common/memory/aligned_buffer.hpp"

#include <cstring>

namespace rawduck {

namespace {

constexpr const char *NO_SUPERBLOCK = "no rawduck superblock";

struct Copy {
    TreeSuperblock superblock{};
    SuperblockCopy state;
    bool unsupported = false, unreadable = false;
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
    memcpy(static_cast<void *>(&copy.superblock), buffer.Data(), sizeof(copy.superblock));
    copy.state.problem = ExamineSuperblock(copy.superblock, io.CapacityBytes(), copy.unsupported);
    copy.state.valid = copy.state.problem.empty();
    copy.state.sequence = copy.state.valid ? copy.superblock.sequence : 0;
    return copy;
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

void RefuseOtherFormat(const Copy &copy, const std::string &target_name) {
    if (copy.unsupported) {
        throw Error(ErrorCode::UNSUPPORTED,
                    target_name + ": cannot mount this volume: " + copy.state.problem);
    }
}

//! What lies at the end of such a target is no superblock of this volume, or one of when it was smaller.
void RefuseShorterTarget(const Copy &first, const BlockIo &io) {
    bool unsupported = false;
    if (first.unreadable || first.state.valid ||
        !ExamineSuperblock(first.superblock, UINT64_MAX, unsupported).empty()) {
        return;
    }
    const std::string &shortest = io.Caps().shortest_part;
    throw Error(
        ErrorCode::CORRUPT,
        io.TargetName() + ": the volume has " +
            std::to_string(first.superblock.capacity_units * ALLOCATION_UNIT_BYTES) + " bytes, and its " +
            (shortest.empty() ? "target only " + std::to_string(io.CapacityBytes())
                              : "targets together have only " + std::to_string(io.CapacityBytes()) +
                                    ", because " + shortest) +
            ": it was made smaller, or not all of it was copied. Nothing was changed; make it as large "
            "again, or copy the volume again");
}

} // namespace

std::string ChooseTreeSuperblock(BlockIo &io, JournalImage &image) {
    const uint64_t capacity = io.CapacityBytes();
    if (capacity < MIN_VOLUME_BYTES) {
        throw Error(ErrorCode::INVALID, io.TargetName() + " is not a rawduck volume: it has only " +
                                            std::to_string(capacity) +
                                            " bytes, and a volume has at least 16 MiB");
    }
    Copy copies[2];
    copies[0] = ReadCopy(io, 0);
    RefuseShorterTarget(copies[0], io);
    const uint64_t units =
        copies[0].state.valid ? copies[0].superblock.capacity_units : capacity / ALLOCATION_UNIT_BYTES;
    copies[1] = ReadCopy(io, units - 1);
    const Copy &end = copies[1];
    if (!copies[0].state.valid && end.state.valid && end.superblock.capacity_units != units) {
        // The third copy, on a target that has become larger: see Journal. One that did not know that may have written.
        Copy second = ReadCopy(io, end.superblock.capacity_units - 1);
        if (second.state.valid && second.superblock.uuid == end.superblock.uuid &&
            second.state.sequence >= end.state.sequence) {
            copies[1] = std::move(second);
        }
    }
    RefuseOtherFormat(copies[0], io.TargetName());
    RefuseOtherFormat(copies[1], io.TargetName());
    const TreeSuperblock &first = copies[0].superblock, &second = copies[1].superblock;
    if (!copies[0].state.valid && !copies[1].state.valid) {
        ThrowNoneValid(copies[0], copies[1], io.TargetName());
    }
    std::string contradiction;
    int chosen = copies[0].state.valid ? 0 : 1;
    const bool both = copies[0].state.valid && copies[1].state.valid;
    if (both && first.uuid != second.uuid) {
        copies[1].state = {false, "it belongs to another volume", 0};
        contradiction = "the superblocks belong to two volumes, " + UuidText(first.uuid) + " and " +
                        UuidText(second.uuid) + "; if one is being copied over the other, copy it again";
    } else if (both && first.sequence != second.sequence) {
        chosen = second.sequence > first.sequence ? 1 : 0;
    } else if (both && memcmp(&first, &second, sizeof(first)) != 0) {
        contradiction = "the superblocks are of the same sequence number and contradict each other";
    }
    if (copies[chosen].superblock.lba_size % io.Caps().lba_size != 0) {
        throw Error(ErrorCode::UNSUPPORTED, io.TargetName() + ": the volume has LBAs of " +
                                                std::to_string(copies[chosen].superblock.lba_size) +
                                                " bytes, but the target takes I/O only in multiples of " +
                                                std::to_string(io.Caps().lba_size) +
                                                "; move the image to a target with LBAs of 512 bytes");
    }
    image.superblock = copies[chosen].superblock;
    image.superblock_copy = chosen;
    image.copies[0] = copies[0].state;
    image.copies[1] = copies[1].state;
    image.copies_agree = contradiction.empty() && both && first.sequence == second.sequence;
    return contradiction;
}

} // namespace rawduck
