#include "volume/mount/mounted_metadata.hpp"

#include <cstring>

namespace rawduck {

namespace {

//! Of metadata pages, in memory.
constexpr uint64_t CACHE_BYTES = 64 * MIB;

//! What no file has. What more than one has is added to `shared`, once for each beside the first.
FreeSpace WithoutFiles(const VolumeFiles &files, const SpaceMap::Area &area, UnitCounts &shared) {
    FreeSpace free(area);
    for (const auto &[id, entry] : files.entries) {
        for (const Extent &extent : entry.extents) {
            uint64_t at = extent.start;
            for (const Extent &part : free.FreeParts(extent.start, extent.units)) {
                shared.Add(at, part.start - at);
                free.Claim(part.start, part.units);
                at = part.start + part.units;
            }
            shared.Add(at, extent.start + extent.units - at);
        }
    }
    return free;
}

//! What neither files nor pages have, as the metadata says; of damaged metadata, as the files do that could be read.
MountedMetadata Mounted(LoadedVolume found) {
    const TreeSuperblock &superblock = found.metadata.image.superblock;
    const SpaceMap::Area area = DataArea(superblock);
    const bool may_share = (superblock.incompat & INCOMPAT_SHARED) != 0;
    UnitCounts shared;
    std::unique_ptr<FreeSpace> free = std::move(found.metadata.space);
    if (!free || may_share) {
        FreeSpace rest = WithoutFiles(found.files, area, shared);
        free = free ? std::move(free) : std::make_unique<FreeSpace>(std::move(rest));
    }
    ZoneCandidates candidates(superblock.data_end);
    candidates.Exclude(found.metadata.freed);
    std::string damage = found.metadata.image.damage;
    return {std::move(found), std::move(*free), std::move(candidates), std::move(shared), std::move(damage)};
}

} // namespace

MountedMetadata MountMetadata(BlockIo &io) {
    return Mounted(LoadVolume(io, CACHE_BYTES, CheckAfterLog::CHANGED_FILES));
}

// The trees are empty: their pages, and the map of these, change while the reader is there.
MountedMetadata MountImage(BlockIo &io, ReaderImage image) {
    LoadedVolume found;
    TreeSuperblock &superblock = found.metadata.image.superblock;
    superblock = image.superblock;
    superblock.roots = {};
    superblock.map_bytes = superblock.map_crc = 0;
    memset(superblock.map_units, 0, sizeof(superblock.map_units));
    superblock.incompat |= INCOMPAT_SHARED;
    found.metadata.image.log.push_back(LogPart());
    found.metadata.trees =
        std::make_unique<MetadataTrees>(io, superblock, superblock.generation + 1, CACHE_BYTES);
    uint64_t id = 0;
    for (CatalogEntry &entry : image.files) {
        found.files.entries[++id] = std::move(entry);
    }
    return Mounted(std::move(found));
}

} // namespace rawduck
