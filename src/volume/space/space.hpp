//! The volume's free space, shared by its files.
#pragma once

#include "common/invariant.hpp"
#include "volume/catalog/free_space.hpp"
#include "volume/space/zone_candidates.hpp"
#include "volume/tree/unit_counts.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <new>
#include <optional>

namespace rawduck {

//! What the space is for; each may use what is kept from those before it. So on a full volume commits still reach the
//! log, blocks can still be replaced (which gives the old ones back), and headers can always be written: a table can be
//! dropped, and the checkpoint that frees its space can finish. Logs come before replacements: only a checkpoint, which
//! replaces blocks, gives back what logs have taken. LAST_CONTENT and LAST_LOG: see AllocateLast.
enum class SpaceUse { CONTENT, LOG, LAST_CONTENT, LAST_LOG, REPLACEMENT, HEADER };

//! Thread-safe.
class Space {
  public:
    //! `shared`: how many files have space besides the one that every file may think it is.
    Space(FreeSpace free, ZoneCandidates candidates, UnitCounts shared = UnitCounts())
        : total_units_(free.TotalUnits()), free_(std::move(free)), candidates_(std::move(candidates)),
          shared_(std::move(shared)) {
        pending_free_.reserve(PENDING_FREE_MAX);
    }

    struct Piece {
        AllocationUnit start{0};
        uint64_t units = 0;
    };
    //! As that of FreeSpace. Where it finds nothing, it waits for what is being deallocated, which is free, too.
    Piece Allocate(uint64_t wanted, AllocationUnit hint, bool from_the_end, SpaceUse use) {
        std::unique_lock<std::mutex> guard(mutex_);
        for (;;) {
            RecordPendingFree();
            if (free_.FreeUnits() >= ReservedUnits(SpaceUse::CONTENT)) {
                last_ = LastUnits(); // all that is kept is whole again
            }
            const Extent found = free_.Allocate(wanted, Index(hint), from_the_end, ReservedUnits(use));
            if (found.units > 0 || claimed_units_ == 0) {
                return {static_cast<AllocationUnit>(found.start), found.units};
            }
            given_back_.wait(guard);
        }
    }
    //! For a database or a log where Allocate finds nothing, and nothing can be given back: a little of what is kept for
    //! replacements. A checkpoint adds blocks before it gives any back, and dropping a table is logged: with this both work
    //! on a volume that nothing else can empty. Two blocks remain for replacements. So much once, until there is as much again
    //! as is kept, or for each mount.
    Piece AllocateLast(uint64_t wanted, AllocationUnit hint, SpaceUse use) {
        RAWDUCK_INVARIANT(use == SpaceUse::LAST_CONTENT || use == SpaceUse::LAST_LOG,
                          "it is for the last uses");
        std::lock_guard<std::mutex> guard(mutex_);
        uint64_t &left = use == SpaceUse::LAST_LOG ? last_.log : last_.content;
        const uint64_t units = wanted <= left ? wanted : 0; // less than all of it would be of no use
        const Extent found = free_.Allocate(units, Index(hint), false, ReservedUnits(use));
        left -= found.units;
        return {static_cast<AllocationUnit>(found.start), found.units};
    }
    //! What AllocateLast gave and was not used.
    void FreeLast(const std::vector<Extent> &extents, SpaceUse use) noexcept {
        Free(extents);
        std::lock_guard<std::mutex> guard(mutex_);
        uint64_t &left = use == SpaceUse::LAST_LOG ? last_.log : last_.content;
        for (const Extent &extent : extents) {
            left += extent.units;
        }
        const LastUnits all; // meanwhile it may have become whole
        left = std::min(left, use == SpaceUse::LAST_LOG ? all.log : all.content);
    }
    //! One extent of `units_min` to `wanted` units, for what need not be done now; `units` 0 when there is none. Nothing
    //! when there may be one soon, because something is being deallocated: then it has waited, so long at most.
    std::optional<Piece> AllocateLong(uint64_t wanted, AllocationUnit hint, uint64_t units_min, SpaceUse use,
                                      std::chrono::milliseconds wait_max) {
        std::unique_lock<std::mutex> guard(mutex_);
        RecordPendingFree();
        for (const AllocationUnit at : {hint, AllocationUnit{0}}) { // behind the hint there may be little
            const Extent found = free_.Allocate(wanted, Index(at), false, ReservedUnits(use));
            if (found.units >= units_min) {
                return Piece{static_cast<AllocationUnit>(found.start), found.units};
            }
            if (found.units > 0) {
                RecordFree(found);
            }
        }
        if (claimed_units_ == 0) {
            return Piece{};
        }
        given_back_.wait_for(guard, wait_max);
        return std::nullopt;
    }
    //! Frees space that was never written: where several files have it, only the last one. None of it may be free
    //! already: two files could get the same space afterwards. What there is no memory to record is tried again later.
    void Free(const std::vector<Extent> &extents) noexcept {
        std::lock_guard<std::mutex> guard(mutex_);
        RecordPendingFree();
        for (const Extent &extent : extents) {
            RecordFree(extent);
        }
    }
    //! Frees space that was written and may be deallocated on the device.
    void Discard(const std::vector<Extent> &extents) noexcept {
        Free(extents);
        if (on_discard_) {
            on_discard_(extents);
        }
    }
    //! Another file has this space, too. All or nothing.
    void Share(const std::vector<Extent> &extents) {
        std::lock_guard<std::mutex> guard(mutex_);
        RecordPendingFree();
        UnitCounts shared = shared_;
        for (const Extent &extent : extents) {
            shared.Add(extent.start, extent.units);
        }
        std::swap(shared_, shared);
    }
    bool AnyShared(const Extent &extent) const {
        std::lock_guard<std::mutex> guard(mutex_);
        return shared_.Any(extent.start, extent.units);
    }
    bool AnyShared(const std::vector<Extent> &extents) const {
        std::lock_guard<std::mutex> guard(mutex_);
        return !shared_.Empty() && std::any_of(extents.begin(), extents.end(), [&](const Extent &extent) {
            return shared_.Any(extent.start, extent.units);
        });
    }
    //! The parts of an extent that only one file has.
    std::vector<Extent> NotShared(const Extent &extent) const {
        std::lock_guard<std::mutex> guard(mutex_);
        std::vector<Extent> parts;
        shared_.ForEach(extent.start, extent.units, [&](const UnitCounts::Piece &piece) {
            if (piece.count == 0) {
                parts.push_back(
                    Extent{extent.file_unit + (piece.start - extent.start), piece.start, piece.units});
            }
        });
        return parts;
    }
    //! What a record of the log has freed, once that is durable.
    void DiscardLogged(const std::vector<Extent> &extents) noexcept {
        {
            std::lock_guard<std::mutex> guard(mutex_);
            candidates_.Exclude(extents);
        }
        Discard(extents);
    }

    //! Takes a zone for metadata pages, if `keep_free` units are free beside it. Returns the first unit; 0 when there
    //! is none. With `wait`, waits for what is being deallocated.
    uint64_t TakeZone(uint64_t keep_free, bool wait) {
        std::unique_lock<std::mutex> guard(mutex_);
        RecordPendingFree();
        for (;;) {
            const bool enough = free_.FreeUnits() >= ZONE_UNITS + keep_free;
            const uint64_t zone = enough ? free_.AllocateAligned(ZONE_UNITS, candidates_.Filter()) : 0;
            if (zone != 0) {
                return zone;
            }
            if (!wait || claimed_units_ == 0) {
                return 0;
            }
            given_back_.wait(guard);
        }
    }
    //! Whether some free space can only be taken for pages once there is another checkpoint.
    bool AwaitsCheckpoint() const {
        std::lock_guard<std::mutex> guard(mutex_);
        return candidates_.AnyExcluded();
    }
    void CheckpointBegins() {
        std::lock_guard<std::mutex> guard(mutex_);
        candidates_.CheckpointBegins();
    }
    void CheckpointIsDurable() {
        std::lock_guard<std::mutex> guard(mutex_);
        candidates_.CheckpointIsDurable();
    }
    //! What has to stay free when space is taken for this use.
    uint64_t KeptUnits(SpaceUse use) const {
        std::lock_guard<std::mutex> guard(mutex_);
        return ReservedUnits(use);
    }

    //! Before the first Discard; it is called without a lock.
    void OnDiscard(std::function<void(const std::vector<Extent> &)> function) {
        on_discard_ = std::move(function);
    }

    //! Before the first ReclaimReservations; it is called without a lock.
    void OnReclaim(std::function<void()> function) { on_reclaim_ = std::move(function); }
    //! Makes all files free what they have reserved and do not use. Call it without any lock held.
    void ReclaimReservations() {
        if (on_reclaim_) {
            on_reclaim_();
        }
    }

    //! Takes those parts of an extent that are free and have at least `units_min` units out of the free space
    //! until GiveBack. An allocation that finds no other space waits for them.
    std::vector<Extent> ClaimFree(const Extent &extent, uint64_t units_min) {
        std::lock_guard<std::mutex> guard(mutex_);
        std::vector<Extent> claimed;
        const std::vector<Extent> parts = free_.FreeParts(extent.start, extent.units);
        claimed.reserve(parts.size()); // what is claimed must not get lost for want of memory
        try {
            for (const Extent &part : parts) {
                if (part.units >= units_min && free_.Claim(part.start, part.units)) {
                    claimed.push_back(part);
                    claimed_units_ += part.units;
                }
            }
        } catch (const std::bad_alloc &) {
            // That is all, then.
        }
        return claimed;
    }
    void GiveBack(const std::vector<Extent> &claimed) noexcept {
        std::lock_guard<std::mutex> guard(mutex_);
        for (const Extent &extent : claimed) {
            RAWDUCK_INVARIANT(extent.units <= claimed_units_, "what is given back was claimed");
            claimed_units_ -= extent.units;
            RecordFree(extent);
        }
        given_back_.notify_all();
    }
    uint64_t FreeUnits() const {
        std::lock_guard<std::mutex> guard(mutex_);
        uint64_t units = free_.FreeUnits() + claimed_units_;
        for (const Extent &extent : pending_free_) {
            units += extent.units;
        }
        return units;
    }
    uint64_t LargestFree() const {
        std::lock_guard<std::mutex> guard(mutex_);
        return free_.LargestFree();
    }
    uint64_t TotalUnits() const { return total_units_; }

    //! The data area ends at `end` now, which no mount will doubt; what it gains is free. When it throws, nothing has
    //! changed.
    void Grow(uint64_t data_end) {
        Extent gained;
        {
            std::lock_guard<std::mutex> guard(mutex_);
            candidates_.Grow(data_end);
            const uint64_t before = free_.TotalUnits();
            free_.Grow(data_end);
            total_units_ = free_.TotalUnits();
            gained.units = total_units_ - before;
            gained.start = data_end - gained.units;
            given_back_.notify_all(); // whoever waits for space finds some
        }
        if (on_discard_ && gained.units > 0) {
            on_discard_({gained}); // the device need not keep what lay there
        }
    }

  private:
    static constexpr uint64_t HEADER_UNITS = 64;
    static constexpr uint64_t KEPT_UNITS_MAX = 16 * MIB / ALLOCATION_UNIT_BYTES;
    static constexpr uint64_t LOG_SHARE = 64;
    static constexpr uint64_t REPLACEMENT_SHARE = 64;
    static constexpr uint64_t BLOCK_UNITS = 256 * KIB / ALLOCATION_UNIT_BYTES;
    static constexpr uint64_t LAST_CONTENT_UNITS = 2 * BLOCK_UNITS;
    static constexpr uint64_t LAST_LOG_UNITS = 4;
    //! At least so much is kept for replacements and last uses, but no more than a share of a small volume.
    static constexpr uint64_t REPLACEMENT_UNITS_MIN = 10 * BLOCK_UNITS;
    static constexpr uint64_t SMALL_VOLUME_SHARE = 8;
    //! What AllocateLast may still give.
    struct LastUnits {
        uint64_t content = LAST_CONTENT_UNITS, log = LAST_LOG_UNITS;
    };
    static constexpr size_t PENDING_FREE_MAX = 256;

    //! The extent is what is left of it afterwards.
    bool TryRecordFree(Extent &extent) noexcept {
        try {
            while (extent.units > 0) {
                const UnitCounts::Piece piece = shared_.First(extent.start, extent.start + extent.units);
                if (piece.count > 0) {
                    shared_.Set(piece.start, piece.units, piece.count - 1);
                } else {
                    const bool freed = free_.Free(piece.start, piece.units);
                    RAWDUCK_INVARIANT(freed, "space is freed once, and lies in the data area");
                }
                extent.start += piece.units;
                extent.units -= piece.units;
            }
            return true;
        } catch (const std::bad_alloc &) {
            return false;
        }
    }
    //! What does not even fit into the list of pending extents is found again at the next mount.
    void RecordFree(Extent extent) noexcept {
        if (!TryRecordFree(extent) && pending_free_.size() < PENDING_FREE_MAX) {
            pending_free_.push_back(extent);
        }
    }
    void RecordPendingFree() noexcept {
        while (!pending_free_.empty() && TryRecordFree(pending_free_.back())) {
            pending_free_.pop_back();
        }
    }

    uint64_t UnitsForReplacements() const {
        const uint64_t at_least = std::min(TotalUnits() / SMALL_VOLUME_SHARE, REPLACEMENT_UNITS_MIN);
        return std::max(at_least, std::min(TotalUnits() / REPLACEMENT_SHARE, KEPT_UNITS_MAX));
    }
    //! Under the mutex.
    uint64_t ReservedUnits(SpaceUse use) const {
        const uint64_t for_logs = std::min(TotalUnits() / LOG_SHARE, KEPT_UNITS_MAX);
        const uint64_t for_replacements = UnitsForReplacements();
        const uint64_t blocks = std::min(2 * BLOCK_UNITS, for_replacements);
        // Databases have taken that from replacements, and not from logs.
        const uint64_t taken = LAST_CONTENT_UNITS - last_.content;
        switch (use) {
        case SpaceUse::CONTENT:
            return HEADER_UNITS + for_replacements + for_logs;
        case SpaceUse::LOG:
            return HEADER_UNITS +
                   std::max(blocks + LAST_LOG_UNITS, for_replacements - std::min(for_replacements, taken));
        case SpaceUse::LAST_CONTENT:
            return HEADER_UNITS + blocks + LAST_LOG_UNITS; // one failed load leaves logs what they may take
        case SpaceUse::LAST_LOG:
            return HEADER_UNITS + blocks;
        case SpaceUse::REPLACEMENT:
            return HEADER_UNITS;
        default:
            return 0;
        }
    }

    std::atomic<uint64_t> total_units_;
    mutable std::mutex mutex_; //!< guards what follows; no other lock is taken under it
    std::condition_variable given_back_;
    FreeSpace free_;
    ZoneCandidates candidates_;
    UnitCounts shared_; //!< how many files have it beside the first
    LastUnits last_;
    uint64_t claimed_units_ = 0;
    std::vector<Extent> pending_free_; //!< free, but for want of memory not yet among the rest
    std::function<void(const std::vector<Extent> &)> on_discard_;
    std::function<void()> on_reclaim_;
};

} // namespace rawduck
