//! Where a file gets space from, and what it does when there is none.
#include "volume/file/file.hpp"

#include "common/error.hpp"

#include <algorithm>

namespace rawduck {

namespace {

//! A file grows by as much as it has, within these bounds.
constexpr uint64_t GROWTH_UNITS_MIN = 1 * MIB / ALLOCATION_UNIT_BYTES;
constexpr uint64_t GROWTH_UNITS_MAX = 64 * MIB / ALLOCATION_UNIT_BYTES;
//! ... and never by more than this share of the free space, so that a nearly full volume is shared fairly.
constexpr uint64_t GROWTH_FREE_SHARE = 8;

} // namespace

// A log's last attempt leaves blocks the metadata that they need to be replaced, as Space does with their space: the
// checkpoint that ends the log replaces some.
void File::Growth::Take(const EntrySize &more, MetadataUse use) {
    if (file_.IsTemp()) {
        return;
    }
    const bool log = file_.kind_ == FileKind::WAL;
    if (file_.MayUseLast(attempt)) {
        use = log ? MetadataUse::LAST_LOG : use == MetadataUse::GROW ? MetadataUse::LAST_CONTENT : use;
    } else if (log) {
        use = MetadataUse::LOG;
    }
    file_.metadata_.Take(more, use);
    taken_ += more;
    any_ = true;
}

bool File::Growth::TryTake(const EntrySize &more, MetadataUse use) {
    try {
        Take(more, use);
    } catch (const Error &error) {
        if (error.Code() != ErrorCode::NO_SPACE) {
            throw;
        }
        return false;
    }
    return true;
}

File::Growth::~Growth() {
    if (any_) {
        std::unique_lock<std::shared_mutex> guard(file_.map_mutex_);
        file_.metadata_.Settle(taken_, file_.SizeOfEntry());
    }
}

// On a full volume only a few blocks can be replaced, and a publish frees the space of the old ones. Files
// also reserve more than they use.
void File::MakeSpace() {
    bool replaced = false;
    {
        std::shared_lock<std::shared_mutex> guard(map_mutex_);
        replaced = !replaced_.empty();
    }
    if (replaced) {
        Sync();
    }
    if (context_.room.CheckpointMayHelp()) {
        context_.log.Checkpoint(); // what was freed may be used for pages then
    }
    context_.space.ReclaimReservations();
}

// Other files have nothing to give back: what is kept is for what a table's end needs.
bool File::MayUseLast(Attempt attempt) const {
    return attempt == Attempt::LAST && (kind_ == FileKind::DATABASE || kind_ == FileKind::WAL);
}

SpaceUse File::LastUse() const {
    return kind_ == FileKind::WAL ? SpaceUse::LAST_LOG : SpaceUse::LAST_CONTENT;
}

std::vector<Extent> File::AllocateOutOfPlace(uint64_t first_unit, uint64_t units, Growth &growth) {
    AllocationUnit hint{0};
    if (first_unit > 0) {
        std::shared_lock<std::shared_mutex> guard(map_mutex_);
        uint64_t contiguous =
            0; // behind the unit before, so that what is written in sequence lies in sequence
        hint = static_cast<AllocationUnit>(
            map_.Locate((first_unit - 1) * ALLOCATION_UNIT_BYTES, contiguous) / ALLOCATION_UNIT_BYTES + 1);
    }
    const SpaceUse use = first_unit * ALLOCATION_UNIT_BYTES < HEAD_BYTES ? SpaceUse::HEADER
                         : kind_ == FileKind::WAL                        ? SpaceUse::LOG
                                                                         : SpaceUse::REPLACEMENT;
    std::vector<Extent> fresh;
    size_t last_from = SIZE_MAX; // the first that is of what is kept for the last
    try {
        for (uint64_t done = 0; done < units;) {
            growth.Take(MoreExtents(2), MetadataUse::REPLACE); // one becomes three
            fresh.emplace_back(Extent{first_unit + done, 0, 0});
            Space::Piece found = context_.space.Allocate(units - done, hint, false, use);
            if (found.units == 0 && use == SpaceUse::LOG && MayUseLast(growth.attempt)) {
                found = context_.space.AllocateLast(units - done, hint, SpaceUse::LAST_LOG);
                last_from = std::min(last_from, fresh.size() - 1);
            }
            if (found.units == 0) {
                throw Error(ErrorCode::NO_SPACE,
                            context_.io.TargetName() + ": the volume is full: no space to replace " +
                                std::to_string(units * ALLOCATION_UNIT_BYTES) + " bytes of \"" + Name() +
                                "\"; remove files from it, or enlarge it (nvme_grow)");
            }
            fresh.back().start = Index(found.start);
            fresh.back().units = found.units;
            done += found.units;
            hint = found.start + found.units;
        }
    } catch (...) {
        if (!fresh.empty() && fresh.back().units == 0) {
            fresh.pop_back();
        }
        if (last_from < fresh.size()) {
            context_.space.FreeLast({fresh.begin() + static_cast<ptrdiff_t>(last_from), fresh.end()},
                                    SpaceUse::LAST_LOG);
            fresh.resize(last_from);
        }
        context_.space.Free(fresh);
        throw;
    }
    return fresh;
}

// As much as the file has, within bounds, so that it lies in few pieces.
Space::Piece File::GrowthFor(uint64_t missing) {
    const SpaceUse use = kind_ == FileKind::WAL ? SpaceUse::LOG : SpaceUse::CONTENT;
    const uint64_t most = std::min(std::max(map_.Units(), GROWTH_UNITS_MIN), GROWTH_UNITS_MAX);
    const uint64_t fair = context_.space.FreeUnits() / GROWTH_FREE_SHARE;
    const uint64_t wanted = std::max(missing, std::min(most, fair));
    return context_.space.Allocate(wanted, map_.End(), IsTemp(), use);
}

// What is kept for the last blocks has metadata that is kept for them, too. Where free space lies in single units that may be
// what logs would need for their next commits: then only removing a file helps.
Space::Piece File::LastFor(uint64_t missing, Growth &growth, bool lacks_metadata) {
    if (lacks_metadata) {
        growth.Take(MoreExtents(1), MetadataUse::LAST_CONTENT);
    }
    return context_.space.AllocateLast(missing, map_.End(), LastUse());
}

// Under the exclusive map mutex. All or nothing: a file that does not fit leaves the space to others.
void File::EnsureUnits(uint64_t units, Growth &growth) {
    const uint64_t units_before = map_.Units();
    uint64_t last_from = UINT64_MAX; // the file unit from which on the file has what is kept for the last
    std::vector<Extent> unused;
    try {
        while (map_.Units() < units) {
            unused.resize(1); // beforehand: what is found must not get lost for want of memory
            bool last = MayUseLast(growth.attempt) && !growth.TryTake(MoreExtents(1), MetadataUse::LOG);
            if (!MayUseLast(growth.attempt)) {
                growth.Take(MoreExtents(1), MetadataUse::GROW);
            }
            Space::Piece found = last ? Space::Piece{} : GrowthFor(units - map_.Units());
            if (found.units == 0 && MayUseLast(growth.attempt)) {
                found = LastFor(units - map_.Units(), growth, last);
                last = true;
                last_from = std::min(last_from, map_.Units());
            }
            if (found.units == 0) {
                throw Error(ErrorCode::NO_SPACE,
                            context_.io.TargetName() + ": the volume is full: cannot grow \"" + Name() +
                                "\" by " + std::to_string((units - map_.Units()) * ALLOCATION_UNIT_BYTES) +
                                " bytes; remove files from it, or enlarge it (nvme_grow)");
            }
            try {
                map_.Append(found.start, found.units);
            } catch (...) {
                unused[0] = Extent{0, Index(found.start), found.units};
                last ? context_.space.FreeLast(unused, LastUse()) : context_.space.Free(unused);
                throw;
            }
        }
    } catch (...) {
        if (last_from < map_.Units()) {
            context_.space.FreeLast(map_.Truncate(last_from), LastUse());
        }
        context_.space.Free(map_.Truncate(units_before));
        throw;
    }
}

} // namespace rawduck
