#include "volume/mount/mounted_metadata.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace rawduck {

namespace {

//! Of metadata pages, in memory.
constexpr uint64_t CACHE_BYTES = 64 * MIB;

//! The units that extents have, as bitmaps of the groups that they lie in.
class SeenUnits {
  public:
    explicit SeenUnits(const SpaceMap::Area &area) : area_(area) {}

    //! What was seen before is added to `again`.
    void Add(const Extent &extent, UnitCounts &again) {
        const uint64_t end = std::min(extent.start + extent.units, area_.end);
        for (uint64_t at = std::max(extent.start, area_.start); at < end;) {
            SpaceMap &map = maps_.try_emplace(GroupOf(at), GroupOf(at), area_).first->second;
            const uint64_t group_start = GroupOf(at) * GROUP_UNITS;
            const auto begin = static_cast<uint32_t>(at - group_start);
            const auto behind = static_cast<uint32_t>(std::min<uint64_t>(end - group_start, GROUP_UNITS));
            for (uint32_t unit = map.Next(begin, true); unit < behind;) {
                const uint32_t seen_end = std::min(behind, map.Next(unit, false));
                again.Add(group_start + unit, seen_end - unit);
                unit = map.Next(seen_end, true);
            }
            map.Set(begin, behind - begin, true);
            at = group_start + behind;
        }
    }

    FreeSpace Rest() const {
        std::vector<GroupSummary> summaries;
        for (uint64_t group = 0; group < area_.Groups(); group++) {
            const auto found = maps_.find(group);
            summaries.push_back(found == maps_.end() ? SpaceMap::EmptySummary(group, area_)
                                                     : found->second.Summary());
        }
        return FreeSpace(area_, summaries, [this](uint64_t group) { return maps_.find(group)->second; });
    }

  private:
    const SpaceMap::Area area_;
    std::unordered_map<uint64_t, SpaceMap> maps_;
};

//! What no file has. What more than one has is added to `shared`, once for each beside the first.
FreeSpace WithoutFiles(const VolumeFiles &files, const SpaceMap::Area &area, UnitCounts &shared) {
    SeenUnits seen(area);
    for (const auto &[id, entry] : files.entries) {
        for (const Extent &extent : entry.extents) {
            seen.Add(extent, shared);
        }
    }
    return seen.Rest();
}

uint64_t UnitsOf(const VolumeFiles &files) {
    uint64_t units = 0;
    for (const auto &[id, entry] : files.entries) {
        for (const Extent &extent : entry.extents) {
            units += extent.units;
        }
    }
    return units;
}

//! Of metadata that could not be read whole.
FreeSpace WithoutZones(FreeSpace space, const std::vector<uint64_t> &zones) {
    for (const uint64_t zone : zones) {
        for (const Extent &part : space.FreeParts(zone, ZONE_UNITS)) {
            space.Claim(part.start, part.units);
        }
    }
    return space;
}

} // namespace

// What was in use by the checkpoint is what its files had. That this is so after the log, too, is worth a look at the sum:
// space that is free and belongs to a file would be given to another.
MountedMetadata MountLoaded(LoadedVolume found) {
    const LoadedMetadata &metadata = found.metadata;
    const TreeSuperblock &superblock = metadata.image.superblock;
    const SpaceMap::Area area = DataArea(superblock);
    const std::vector<uint64_t> zones = metadata.trees->pages.Zones();
    const bool shares = metadata.space && !metadata.trees->catalog.References().Empty();
    MountedMetadata mounted{
        {}, FreeSpace(area), ZoneCandidates(superblock.data_end), {}, metadata.image.damage};
    uint64_t free_units = mounted.free.TotalUnits() - UnitsOf(found.files);
    if (!metadata.space || shares) {
        mounted.free = WithoutZones(WithoutFiles(found.files, area, mounted.shared), zones);
        free_units = mounted.free.FreeUnits();
    } else {
        free_units -= zones.size() * ZONE_UNITS;
    }
    if (metadata.space) {
        mounted.free = std::move(*metadata.space);
    }
    if (mounted.damage.empty() && mounted.free.FreeUnits() != free_units) {
        mounted.damage = "by the metadata " + std::to_string(mounted.free.FreeUnits()) +
                         " allocation units are free, and the files leave " + std::to_string(free_units);
    }
    mounted.candidates.Exclude(metadata.freed);
    mounted.found = std::move(found);
    return mounted;
}

MountedMetadata MountMetadata(BlockIo &io) {
    return MountLoaded(LoadVolume(io, CACHE_BYTES, CheckAfterLog::CHANGED_FILES));
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
    return MountLoaded(std::move(found));
}

} // namespace rawduck
