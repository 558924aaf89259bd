#include "volume/journal/metadata_trees.hpp"

#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "common/make_room.hpp"
#include "common/memory/aligned_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <set>

namespace rawduck {

namespace {

std::string ReadMap(BlockIo &io, const TreeSuperblock &superblock) {
    const std::vector<uint64_t> units = MapUnits(superblock);
    AlignedBuffer buffer(units.size() * TREE_PAGE_BYTES);
    for (size_t i = 0; i < units.size(); i++) {
        io.Read(units[i] * ALLOCATION_UNIT_BYTES, buffer.Data() + i * TREE_PAGE_BYTES, TREE_PAGE_BYTES);
    }
    std::string map(buffer.Data(), superblock.map_bytes);
    if (Crc32c(0, map.data(), map.size()) != superblock.map_crc) {
        throw Error(ErrorCode::CORRUPT, io.TargetName() +
                                            ": the map of metadata pages is damaged (its checksum is wrong); "
                                            "nothing was changed. Restore the volume from a backup");
    }
    return map;
}

} // namespace

uint64_t ZoneStock::Take() {
    std::lock_guard<std::mutex> guard(mutex_);
    if (zones_.empty()) {
        return 0;
    }
    const uint64_t zone = zones_.back();
    zones_.pop_back();
    return zone;
}

// Without memory to remember it, the next mount finds the zone free.
void ZoneStock::Give(uint64_t start) noexcept {
    std::lock_guard<std::mutex> guard(mutex_);
    try {
        zones_.push_back(start);
    } catch (const std::bad_alloc &) {
    }
}

bool ZoneStock::Fill(size_t zones, const std::function<uint64_t()> &take) {
    std::unique_lock<std::mutex> guard(mutex_);
    const size_t missing = zones - std::min(zones, zones_.size());
    MakeRoom(zones_, missing);
    guard.unlock();
    bool added = false;
    for (size_t i = 0; i < missing; i++) {
        const uint64_t zone = take();
        if (zone == 0) {
            break;
        }
        Give(zone);
        added = true;
    }
    return added;
}

std::vector<uint64_t> ZoneStock::Shrink(size_t zones) {
    std::lock_guard<std::mutex> guard(mutex_);
    std::vector<uint64_t> surplus;
    if (zones_.size() > zones) {
        surplus.assign(zones_.begin() + static_cast<long>(zones), zones_.end());
        zones_.resize(zones);
    }
    return surplus;
}

MetadataTrees::MetadataTrees(BlockIo &io, const TreeSuperblock &superblock, uint64_t generation,
                             uint64_t cache_bytes)
    : pages([this] { return zones.Take(); }, [this](uint64_t start) { zones.Give(start); }),
      store(io, superblock.uuid, pages, generation, cache_bytes),
      catalog(store, superblock.roots, superblock.lba_size, DataArea(superblock)),
      map_units(MapUnits(superblock)) {
    const std::string problem =
        pages.Load(ReadMap(io, superblock), superblock.data_start, superblock.data_end);
    if (!problem.empty()) {
        throw Error(ErrorCode::CORRUPT, io.TargetName() + ": " + problem +
                                            "; nothing was changed. Restore the volume from a backup");
    }
}

std::vector<std::string> MetadataTrees::FindProblems() const {
    std::set<uint64_t> used(map_units.begin(), map_units.end());
    std::vector<std::string> page_problems;
    std::vector<std::string> problems = catalog.FindProblems([&](const PagePointer &page) {
        const std::string name = "metadata page at allocation unit " + std::to_string(page.unit);
        if (!used.insert(page.unit).second) {
            page_problems.push_back(name + " is referred to twice");
        } else if (!pages.InUse(page.unit)) {
            page_problems.push_back(name + " is not in the map of pages");
        }
    });
    problems.insert(problems.end(), page_problems.begin(), page_problems.end());
    if (problems.empty() && used.size() != pages.UsedPages()) {
        problems.push_back("of " + std::to_string(pages.UsedPages()) + " metadata pages in use only " +
                           std::to_string(used.size()) + " are referred to");
    }
    for (const uint64_t zone : pages.Zones()) {
        if (problems.empty() && !catalog.Space().AllFree(Extent{0, zone, ZONE_UNITS})) {
            problems.push_back("files have space in the zone of metadata pages at allocation unit " +
                               std::to_string(zone));
        }
    }
    return problems;
}

FreeSpace FindFreeSpace(MetadataTrees &trees, const SpaceMap::Area &area) {
    std::vector<GroupSummary> summaries;
    std::vector<uint64_t> zones;
    {
        std::shared_lock<std::shared_mutex> guard(trees.store.Mutex());
        summaries = trees.catalog.Space().Summaries();
        zones = trees.pages.Zones();
    }
    FreeSpace space(area, summaries, [&trees](uint64_t group) {
        std::shared_lock<std::shared_mutex> guard(trees.store.Mutex());
        return trees.catalog.Space().Map(group);
    });
    for (const uint64_t zone : zones) {
        if (!space.Claim(zone, ZONE_UNITS)) {
            throw Error(ErrorCode::CORRUPT,
                        "files have space in the zone of metadata pages at allocation unit " +
                            std::to_string(zone) + "; `rawduck check` tells more");
        }
    }
    return space;
}

} // namespace rawduck
