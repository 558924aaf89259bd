#include "volume/mount/mounted_metadata.hpp"

#include "common/error.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

//! Of metadata pages, in memory.
constexpr uint64_t CACHE_BYTES = 64 * MIB;

void Complain(std::string &damage, const std::string &problem) {
    damage = damage.empty() ? problem : damage;
}

//! What is not free belongs to another file already. Whether it should is known: all references were counted.
void ShareTaken(MountedMetadata &mounted, uint64_t start, uint64_t units) {
    uint64_t at = start;
    const uint64_t end = start + units;
    for (const auto &part : mounted.allocator.FreeParts(static_cast<AllocationUnit>(start), units)) {
        mounted.shared.Add(at, Index(part.start) - at);
        mounted.allocator.Claim(part.start, part.units);
        at = Index(part.start) + part.units;
    }
    mounted.shared.Add(at, end - at);
}

struct FileExtent {
    uint64_t start, units;
    const CatalogEntry *entry;
};

//! In the order of the device.
std::vector<FileExtent> ExtentsOf(const VolumeFiles &files) {
    size_t count = 0;
    for (const auto &[id, entry] : files.entries) {
        count += entry.extents.size();
    }
    std::vector<FileExtent> extents;
    extents.reserve(count);
    for (const auto &[id, entry] : files.entries) {
        for (const Extent &extent : entry.extents) {
            extents.push_back({extent.start, extent.units, &entry});
        }
    }
    // Most files have their extents in order, of which a merge makes use.
    std::stable_sort(extents.begin(), extents.end(),
                     [](const FileExtent &a, const FileExtent &b) { return a.start < b.start; });
    return extents;
}

//! What nothing before it overlaps, into `used`. Returns the rest.
std::vector<FileExtent> TakeDisjoint(const VolumeFiles &files, const SpaceMap::Area &area,
                                     std::vector<Allocator::Result> &used) {
    const std::vector<FileExtent> extents = ExtentsOf(files);
    std::vector<FileExtent> rest;
    used.reserve(extents.size());
    uint64_t end = area.start;
    for (const FileExtent &extent : extents) {
        const bool fits = extent.start >= end && extent.start < area.end && extent.units > 0 &&
                          extent.units <= area.end - extent.start;
        if (fits) {
            used.push_back({static_cast<AllocationUnit>(extent.start), extent.units});
            end = extent.start + extent.units;
        } else {
            rest.push_back(extent);
        }
    }
    return rest;
}

void ShareRest(MountedMetadata &mounted, const std::vector<FileExtent> &rest) {
    const bool may_share = (mounted.found.metadata.image.superblock.incompat & INCOMPAT_SHARED) != 0;
    for (const FileExtent &extent : rest) {
        if (may_share) {
            ShareTaken(mounted, extent.start, extent.units);
        } else {
            Complain(mounted.damage, "file \"" + extent.entry->name + "\" shares space with another");
        }
    }
}

void ClaimZones(MountedMetadata &mounted) {
    for (const uint64_t zone : mounted.found.metadata.trees->pages.Zones()) {
        if (!mounted.allocator.Claim(static_cast<AllocationUnit>(zone), ZONE_UNITS)) {
            Complain(mounted.damage, "files have space in the zone of metadata pages at allocation unit " +
                                         std::to_string(zone));
        }
    }
}

MountedMetadata Claimed(LoadedVolume found) {
    const TreeSuperblock &sb = found.metadata.image.superblock;
    std::vector<Allocator::Result> used;
    const std::vector<FileExtent> rest = TakeDisjoint(found.files, DataArea(sb), used);
    Allocator allocator(AllocationUnit{sb.data_start}, AllocationUnit{sb.data_end}, used);
    std::string damage = found.metadata.image.damage;
    ZoneCandidates candidates(sb.data_end);
    MountedMetadata mounted{
        std::move(found), std::move(allocator), std::move(candidates), {}, std::move(damage)};
    ShareRest(mounted, rest);
    ClaimZones(mounted);
    return mounted;
}

} // namespace

MountedMetadata MountMetadata(BlockIo &io) {
    MountedMetadata mounted = Claimed(LoadVolume(io, CACHE_BYTES));
    mounted.candidates.Exclude(mounted.found.metadata.freed);
    return mounted;
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
    return Claimed(std::move(found));
}

} // namespace rawduck
