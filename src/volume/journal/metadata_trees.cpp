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

//! Returns what is wrong with it.
std::string ReadMap(BlockIo &io, const TreeSuperblock &superblock, std::string &map) {
    const std::vector<uint64_t> units = MapUnits(superblock);
    AlignedBuffer buffer(units.size() * TREE_PAGE_BYTES);
    try {
        for (size_t i = 0; i < units.size(); i++) {
            io.Read(units[i] * ALLOCATION_UNIT_BYTES, buffer.Data() + i * TREE_PAGE_BYTES, TREE_PAGE_BYTES);
        }
    } catch (const Error &error) {
        if (error.Code() != ErrorCode::IO) {
            throw;
        }
        return std::string("the map of metadata pages cannot be read (") + error.what() + ")";
    }
    map.assign(buffer.Data(), superblock.map_bytes);
    const bool whole = Crc32c(0, map.data(), map.size()) == superblock.map_crc;
    return whole ? "" : "the map of metadata pages is damaged (its checksum is wrong)";
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

bool ZoneStock::Add(const std::function<uint64_t()> &take) {
    {
        std::lock_guard<std::mutex> guard(mutex_);
        MakeRoom(zones_, 2);
    }
    const uint64_t zone = take();
    if (zone != 0) {
        Give(zone);
    }
    return zone != 0;
}

void ZoneStock::Clear() {
    std::lock_guard<std::mutex> guard(mutex_);
    zones_.clear();
}

MetadataTrees::MetadataTrees(BlockIo &io, const TreeSuperblock &superblock, uint64_t generation,
                             uint64_t cache_bytes)
    : pages([this] { return zones.Take(); }, [this](uint64_t start) { zones.Give(start); }),
      store(io, superblock.uuid, pages, generation, cache_bytes),
      catalog(store, superblock.roots, superblock.lba_size, DataArea(superblock)),
      map_units(MapUnits(superblock)) {
    std::string map;
    map_problem = ReadMap(io, superblock, map);
    if (map_problem.empty()) {
        map_problem = pages.Load(map, superblock.data_start, superblock.data_end);
    }
}

std::vector<std::string> MetadataTrees::FindProblems(const CatalogTree::VisitFile &visit_file) const {
    if (!map_problem.empty()) {
        return {map_problem};
    }
    std::set<uint64_t> used(map_units.begin(), map_units.end());
    std::vector<std::string> page_problems;
    const auto visit_page = [&](const PagePointer &page) {
        const std::string name = "metadata page at allocation unit " + std::to_string(page.unit);
        if (!used.insert(page.unit).second) {
            page_problems.push_back(name + " is referred to twice");
        } else if (!pages.InUse(page.unit)) {
            page_problems.push_back(name + " is not in the map of pages");
        }
    };
    std::vector<std::string> problems = catalog.FindProblems(visit_page, visit_file);
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
    std::shared_lock<std::shared_mutex> guard(trees.store.Mutex());
    const SpaceTree &in_use = trees.catalog.Space();
    FreeSpace space(area, in_use.Summaries(), [&](uint64_t group) { return in_use.Map(group); });
    for (const uint64_t zone : trees.pages.Zones()) {
        if (!space.Claim(zone, ZONE_UNITS)) {
            throw Error(ErrorCode::CORRUPT,
                        "files have space in the zone of metadata pages at allocation unit " +
                            std::to_string(zone) + "; `rawduck check` tells more");
        }
    }
    return space;
}

} // namespace rawduck
