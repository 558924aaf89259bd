//! Lists of a file's extents and holes: what items do to them.
#pragma once

#include "volume/format/record.hpp"

#include <vector>

namespace rawduck {

//! Allocation units that the extents cover, from the start of the file without a gap.
uint64_t UnitsOf(const std::vector<Extent> &extents);
//! Adds an extent where the list ends; one that continues the last on the target becomes part of it.
void AppendExtent(std::vector<Extent> &extents, const Extent &extent);
//! Gives up everything from file unit `units` on.
void CutExtents(std::vector<Extent> &extents, uint64_t units);
//! The list with other places for the ranges of `moved`, which are in order and covered by it.
std::vector<Extent> RemappedExtents(const std::vector<Extent> &extents, const std::vector<Extent> &moved);

//! Gives up everything from byte `size` on.
void CutHoles(std::vector<Hole> &holes, uint64_t size);
//! Whether the holes are in order, disjoint, not empty, and inside a file of this size.
bool AreHolesSound(const std::vector<Hole> &holes, uint64_t size);

} // namespace rawduck
