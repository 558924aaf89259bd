#include "volume/mount/mounted_metadata.hpp"

#include "common/error.hpp"

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

} // namespace

MountedMetadata MountMetadata(BlockIo &io) {
    LoadedVolume found = LoadVolume(io, CACHE_BYTES);
    const TreeSuperblock &sb = found.metadata.image.superblock;
    MountedMetadata mounted{{},
                            Allocator(AllocationUnit{sb.data_start}, AllocationUnit{sb.data_end}),
                            ZoneCandidates(sb.data_end),
                            {},
                            found.metadata.image.damage};
    mounted.found = std::move(found);
    ClaimSpace(mounted);
    mounted.candidates.Exclude(mounted.found.metadata.freed);
    return mounted;
}

} // namespace rawduck
