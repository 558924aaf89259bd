//! The volume's free space, shared by its files.
#pragma once

#include "common/error.hpp"
#include "volume/allocator.hpp"

#include <algorithm>
#include <mutex>

namespace rawduck {

//! What the space is for. Logs and header pages may use what is kept from everything else, so that on a full
//! volume a table can still be dropped and the checkpoint that frees its space can still finish.
enum class SpaceUse { CONTENT, LOG, HEADER };

//! Thread-safe.
class Space {
  public:
    explicit Space(Allocator allocator) : allocator_(std::move(allocator)) {}

    Allocator::Result Allocate(uint64_t wanted, Unit hint, bool from_the_end, SpaceUse use) {
        std::lock_guard<std::mutex> guard(mutex_);
        return allocator_.Allocate(wanted, hint, from_the_end, KeptFree(use));
    }
    //! Throws Error CORRUPT when any of it was free already: a bug, after which two files could be given the
    //! same space.
    void Free(const std::vector<Extent> &extents) {
        std::lock_guard<std::mutex> guard(mutex_);
        for (const Extent &extent : extents) {
            if (!allocator_.Free(static_cast<Unit>(extent.start), extent.units)) {
                throw Error(ErrorCode::CORRUPT,
                            "space at unit " + std::to_string(extent.start) +
                                " was freed twice; this is a bug in rawduck, please report it");
            }
        }
    }
    uint64_t FreeUnits() const {
        std::lock_guard<std::mutex> guard(mutex_);
        return allocator_.FreeUnits();
    }
    uint64_t LargestFree() const {
        std::lock_guard<std::mutex> guard(mutex_);
        return allocator_.LargestFree();
    }
    uint64_t TotalUnits() const { return allocator_.TotalUnits(); }

  private:
    static constexpr uint64_t HEADER_UNITS = 64;
    static constexpr uint64_t LOG_UNITS_MAX = 16 * MIB / UNIT_SIZE;
    static constexpr uint64_t LOG_SHARE = 64;

    uint64_t KeptFree(SpaceUse use) const {
        const uint64_t for_logs = std::min(TotalUnits() / LOG_SHARE, LOG_UNITS_MAX);
        return use == SpaceUse::HEADER ? 0 : HEADER_UNITS + (use == SpaceUse::LOG ? 0 : for_logs);
    }

    mutable std::mutex mutex_;
    Allocator allocator_;
};

} // namespace rawduck
