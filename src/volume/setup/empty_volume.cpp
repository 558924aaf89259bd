#include "volume/setup/empty_volume.hpp"

#include "common/error.hpp"
#include "common/memory/aligned_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <set>

namespace rawduck {

namespace {

//! Length of one write of zeros.
constexpr uint64_t ZEROS_BYTES = 4 * MIB;

void WriteUnit(BlockIo &io, uint64_t unit, const char *content) {
    AlignedBuffer buffer(ALLOCATION_UNIT_BYTES);
    memcpy(buffer.Data(), content, ALLOCATION_UNIT_BYTES);
    io.Write(unit * ALLOCATION_UNIT_BYTES, buffer.Data(), ALLOCATION_UNIT_BYTES, PlacementClass::METADATA);
}

//! False when it cannot be read.
bool ReadSuperblockUnit(BlockIo &io, uint64_t unit, TreeSuperblock &content) {
    AlignedBuffer buffer(ALLOCATION_UNIT_BYTES);
    try {
        io.Read(unit * ALLOCATION_UNIT_BYTES, buffer.Data(), ALLOCATION_UNIT_BYTES);
    } catch (const Error &error) {
        if (error.Code() != ErrorCode::IO) {
            throw;
        }
        return false;
    }
    memcpy(static_cast<void *>(&content), buffer.Data(), ALLOCATION_UNIT_BYTES);
    return true;
}

// Of a volume of any version, whose length is at the same place in all.
std::set<uint64_t> PlacesOfSuperblocks(BlockIo &io, const EmptyVolume &fresh) {
    const uint64_t units = io.Caps().capacity_bytes / ALLOCATION_UNIT_BYTES;
    std::set<uint64_t> places = {fresh.capacity_units - 1, units - 1};
    TreeSuperblock old;
    bool unsupported = false;
    const bool is_volume =
        ReadSuperblockUnit(io, 0, old) &&
        (ExamineSuperblock(old, io.Caps().capacity_bytes, unsupported).empty() || unsupported);
    if (is_volume && old.capacity_units > 1 && old.capacity_units <= units) {
        places.insert(old.capacity_units - 1);
    }
    return places;
}

} // namespace

EmptyVolume::EmptyVolume(const TreeSuperblock &sb) : capacity_units(sb.capacity_units) {
    memcpy(superblock, &sb, sizeof(superblock));
    for (const uint64_t start : sb.log_start) {
        areas.push_back({start, sb.log_units});
    }
}

// The last unit of the target holds no file of any volume; elsewhere only what looks like a superblock is wiped, or
// cannot be read.
void WipeSuperblocks(BlockIo &io, const EmptyVolume &fresh) {
    const char zeros[ALLOCATION_UNIT_BYTES] = {};
    const uint64_t end = io.Caps().capacity_bytes / ALLOCATION_UNIT_BYTES - 1;
    for (const uint64_t place : PlacesOfSuperblocks(io, fresh)) {
        TreeSuperblock found;
        if (place == end || !ReadSuperblockUnit(io, place, found) ||
            memcmp(found.magic, SUPERBLOCK_MAGIC, sizeof(SUPERBLOCK_MAGIC)) == 0) {
            WriteUnit(io, place, zeros);
        }
    }
    io.Flush();
}

void WriteSuperblocks(BlockIo &io, const EmptyVolume &fresh, const std::function<void()> &between) {
    WriteUnit(io, 0, fresh.superblock);
    io.Flush();
    between();
    WriteUnit(io, fresh.capacity_units - 1, fresh.superblock);
    io.Flush();
}

void WriteAreas(BlockIo &io, const EmptyVolume &fresh) {
    AlignedBuffer zeros;
    zeros.AppendZeros(ZEROS_BYTES);
    for (const EmptyVolume::Area &area : fresh.areas) {
        const uint64_t bytes = area.units * ALLOCATION_UNIT_BYTES;
        for (uint64_t done = 0; done < bytes; done += ZEROS_BYTES) {
            io.Write(area.start * ALLOCATION_UNIT_BYTES + done, zeros.Data(),
                     std::min(ZEROS_BYTES, bytes - done), PlacementClass::METADATA);
        }
    }
    io.Flush();
}

} // namespace rawduck
