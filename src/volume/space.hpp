//! The volume's free space, shared by its files.
#pragma once

#include "volume/allocator.hpp"

#include <mutex>

namespace rawduck {

//! Thread-safe.
class Space {
  public:
    explicit Space(Allocator allocator) : allocator_(std::move(allocator)) {}

    Allocator::Result Allocate(uint64_t wanted, Unit hint, bool from_the_end, bool urgent) {
        std::lock_guard<std::mutex> guard(mutex_);
        return allocator_.Allocate(wanted, hint, from_the_end, urgent);
    }
    //! False when any of it was free already, which is a bug.
    bool Free(const std::vector<Extent> &extents) {
        std::lock_guard<std::mutex> guard(mutex_);
        bool all = true;
        for (const Extent &extent : extents) {
            all = allocator_.Free(static_cast<Unit>(extent.start), extent.units) && all;
        }
        return all;
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
    mutable std::mutex mutex_;
    Allocator allocator_;
};

} // namespace rawduck
