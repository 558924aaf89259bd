#include "volume/backup/difference.hpp"

#include "common/units.hpp"

#include <algorithm>

namespace rawduck {

namespace {

enum class Content {
    PLACE,   //!< what lies there on the target
    HOLE,    //!< zeros
    UNKNOWN, //!< something else
    NOTHING  //!< behind the end
};

//! What a file has at an offset, and up to where that is said.
struct Piece {
    Content content = Content::NOTHING;
    uint64_t place = 0, end = UINT64_MAX;
};

//! Asked for ascending offsets.
class LayoutCursor {
  public:
    LayoutCursor(const FileLayout *layout, uint32_t lba_size) : layout_(layout) {
        known_ = layout ? AlignDown(layout->size, lba_size) : 0;
    }

    Piece At(uint64_t offset) {
        if (!layout_ || offset >= layout_->size) {
            return Piece();
        }
        if (offset >= known_) { // also where a hole was there before
            return {Content::UNKNOWN, 0, layout_->size};
        }
        const std::vector<Hole> &holes = layout_->holes;
        while (hole_ < holes.size() && holes[hole_].offset + holes[hole_].length <= offset) {
            hole_++;
        }
        uint64_t end = known_;
        if (hole_ < holes.size()) {
            if (holes[hole_].offset <= offset) {
                return {Content::HOLE, 0, std::min(end, holes[hole_].offset + holes[hole_].length)};
            }
            end = std::min(end, holes[hole_].offset);
        }
        const std::vector<ExtentInfo> &extents = layout_->extents;
        while (extent_ < extents.size() && extents[extent_].file_offset + extents[extent_].length <= offset) {
            extent_++;
        }
        if (extent_ == extents.size()) {
            return {Content::UNKNOWN, 0, end};
        }
        const ExtentInfo &extent = extents[extent_];
        return {Content::PLACE, extent.device_offset + (offset - extent.file_offset),
                std::min(end, extent.file_offset + extent.length)};
    }

  private:
    const FileLayout *layout_;
    uint64_t known_ = 0; //!< bytes of which the lists say what they are: behind are those of the metadata
    size_t hole_ = 0, extent_ = 0;
};

} // namespace

std::vector<ChangedRange> FindDifference(const FileLayout *base, const FileLayout &now, uint32_t lba_size) {
    LayoutCursor before(base, lba_size), after(&now, lba_size);
    std::vector<ChangedRange> changed;
    for (uint64_t offset = 0; offset < now.size;) {
        const Piece a = before.At(offset), b = after.At(offset);
        const uint64_t end = std::min(a.end, b.end);
        const bool same_place =
            a.content == Content::PLACE && b.content == Content::PLACE && a.place == b.place;
        const bool no_bytes =
            b.content == Content::HOLE && (a.content == Content::HOLE || a.content == Content::NOTHING);
        if (!same_place && !no_bytes) {
            const bool zeros = b.content == Content::HOLE;
            if (!changed.empty() && changed.back().zeros == zeros &&
                changed.back().offset + changed.back().length == offset) {
                changed.back().length += end - offset;
            } else {
                changed.push_back({offset, end - offset, zeros});
            }
        }
        offset = end;
    }
    return changed;
}

} // namespace rawduck
