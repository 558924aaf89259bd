//! Where zones of metadata pages may be taken from free space. A mount applies the log to the last checkpoint, and needs
//! room for the pages that change: not where that checkpoint or a record has given space to a file, since it does not
//! know yet that this is free again. So what the log frees is left out until a checkpoint without it is durable, and
//! there is always as much room for the next mount as for this one.
#pragma once

#include "volume/format/record.hpp"
#include "volume/tree/page_space.hpp"

#include <functional>
#include <vector>

namespace rawduck {

//! Not thread-safe. Needs memory only when it is made, and to grow.
class ZoneCandidates {
  public:
    explicit ZoneCandidates(uint64_t data_end) : since_(data_end / ZONE_UNITS + 1), before_(since_.size()) {}

    //! Nothing that the log has freed lies in what the data area gains.
    void Grow(uint64_t data_end) {
        before_.resize(data_end / ZONE_UNITS + 1);
        since_.resize(before_.size()); // last: what is asked for lies in both
    }

    //! What the log has freed since the checkpoint began that was begun last.
    void Exclude(const std::vector<Extent> &extents) noexcept;
    //! A checkpoint begins: none is being written.
    void CheckpointBegins() noexcept;
    void CheckpointIsDurable() noexcept;

    bool AnyExcluded() const { return any_since_ || any_before_; }
    //! Whether a zone may begin there.
    std::function<bool(uint64_t start)> Filter() const {
        return [this](uint64_t start) { return !since_[start / ZONE_UNITS] && !before_[start / ZONE_UNITS]; };
    }

  private:
    //! By zone: freed since a checkpoint began, and before that.
    std::vector<bool> since_, before_;
    bool any_since_ = false, any_before_ = false;
};

} // namespace rawduck
