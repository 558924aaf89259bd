#include "volume/format/extent_list.hpp"

#include <algorithm>

namespace rawduck {

uint64_t UnitsOf(const std::vector<Extent> &extents) {
    return extents.empty() ? 0 : extents.back().file_unit + extents.back().units;
}

void AppendExtent(std::vector<Extent> &extents, const Extent &extent) {
    if (!extents.empty() && extents.back().start + extents.back().units == extent.start) {
        extents.back().units += extent.units;
    } else {
        extents.push_back(extent);
    }
}

void CutExtents(std::vector<Extent> &extents, uint64_t units) {
    while (!extents.empty() && extents.back().file_unit >= units) {
        extents.pop_back();
    }
    if (!extents.empty() && extents.back().file_unit + extents.back().units > units) {
        extents.back().units = units - extents.back().file_unit;
    }
}

std::vector<Extent> RemappedExtents(const std::vector<Extent> &extents,
                                    const std::vector<Extent> &moved_list) {
    std::vector<Extent> rebuilt;
    auto moved = moved_list.begin();
    for (const Extent &extent : extents) {
        uint64_t at = extent.file_unit;
        const uint64_t extent_end = extent.file_unit + extent.units;
        while (at < extent_end) {
            while (moved != moved_list.end() && moved->file_unit + moved->units <= at) {
                ++moved;
            }
            const bool hit = moved != moved_list.end() && moved->file_unit <= at;
            const uint64_t stop = hit                         ? moved->file_unit + moved->units
                                  : moved != moved_list.end() ? moved->file_unit
                                                              : extent_end;
            const uint64_t piece_end = std::min(stop, extent_end);
            const uint64_t start =
                hit ? moved->start + (at - moved->file_unit) : extent.start + (at - extent.file_unit);
            AppendExtent(rebuilt, Extent{at, start, piece_end - at});
            at = piece_end;
        }
    }
    return rebuilt;
}

void CutHoles(std::vector<Hole> &holes, uint64_t size) {
    while (!holes.empty() && holes.back().offset >= size) {
        holes.pop_back();
    }
    if (!holes.empty() && holes.back().offset + holes.back().length > size) {
        holes.back().length = size - holes.back().offset;
    }
}

bool AreHolesSound(const std::vector<Hole> &holes, uint64_t size) {
    uint64_t end = 0;
    for (const Hole &hole : holes) {
        if (hole.length == 0 || hole.offset < end || hole.offset > size || hole.length > size - hole.offset) {
            return false;
        }
        end = hole.offset + hole.length;
    }
    return true;
}

} // namespace rawduck
