#include "volume/mount/mounted_metadata.hpp"

#include "common/error.hpp"

#include <cstring>

namespace rawduck {

namespace {

//! Of metadata pages, in memory.
constexpr uint64_t CACHE_BYTES = 64 * MIB;

void Complain(std::string &damage, const std::string &problem) {
    damage = damage.empty() ? problem : damage;
}

//! What is not free belongs to another file already. Whether it should is known: all references were counted.
void ShareTaken(MountedMetadata &mounted, const Extent &extent) {
    uint64_t at = extent.start;
    const uint64_t end = extent.start + extent.units;
    for (const auto &part : mounted.allocator.FreeParts(static_cast<AllocationUnit>(at), extent.units)) {
        mounted.shared.Add(at, Index(part.start) - at);
        mounted.allocator.Claim(part.start, part.units);
        at = Index(part.start) + part.units;
    }
    mounted.shared.Add(at, end - at);
}

void ClaimSpace(MountedMetadata &mounted) {
    const bool may_share = (mounted.found.metadata.image.superblock.incompat & INCOMPAT_SHARED) != 0;
    for (const auto &[id, entry] : mounted.found.files.entries) {
        for (const Extent &extent : entry.extents) {
            if (mounted.allocator.Claim(static_cast<AllocationUnit>(extent.start), extent.units)) {
                continue;
            }
            if (may_share) {
                ShareTaken(mounted, extent);
            } else {
                Complain(mounted.damage, "file \"" + entry.name + "\" shares space with another");
            }
        }
    }
    for (const uint64_t zone : mounted.found.metadata.trees->pages.Zones()) {
        if (!mounted.allocator.Claim(static_cast<AllocationUnit>(zone), ZONE_UNITS)) {
            Complain(mounted.damage, "files have space in the zone of metadata pages at allocation unit " +
                                         std::to_string(zone));
        }
    }
}

MountedMetadata Claimed(LoadedVolume found) {
    const TreeSuperblock &sb = found.metadata.image.superblock;
    MountedMetadata mounted{{},
                            Allocator(AllocationUnit{sb.data_start}, AllocationUnit{sb.data_end}),
                            ZoneCandidates(sb.data_end),
                            {},
                            found.metadata.image.damage};
    mounted.found = std::move(found);
    ClaimSpace(mounted);
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
