#include "volume/journal/load_metadata.hpp"

#include "common/error.hpp"
#include "volume/journal/read_journal.hpp"

namespace rawduck {

namespace {

//! Zones that are taken at once.
constexpr size_t STOCK_ZONES = 4;

//! What the log allocates is not free for pages, though it may be so in the checkpoint.
void ClaimAllocated(FreeSpace &space, const CatalogTree &catalog,
                    const std::vector<std::vector<Item>> &records) {
    for (const std::vector<Item> &items : records) {
        for (const Item &item : items) {
            for (const Extent &extent : item.extents) {
                if (!catalog.Space().Contains(extent)) {
                    continue; // Apply says so
                }
                for (const Extent &part : space.FreeParts(extent.start, extent.units)) {
                    space.Claim(part.start, part.units);
                }
            }
        }
    }
}

//! Returns what is wrong with the item, or nothing.
std::string ApplyItem(MetadataTrees &trees, FreeSpace &space, const Item &item) {
    for (;;) {
        try {
            std::unique_lock<std::shared_mutex> guard(trees.store.Mutex());
            std::string problem;
            trees.catalog.Apply(item, PageUse::REMOVE, problem);
            return problem;
        } catch (const Error &error) {
            const auto take = [&] { return space.AllocateAligned(ZONE_UNITS); };
            if (error.Code() != ErrorCode::NO_SPACE || !trees.zones.Fill(STOCK_ZONES, take)) {
                throw;
            }
        }
    }
}

//! Applies the records up to one that contradicts the state, which is damage.
void Replay(MetadataTrees &trees, FreeSpace space, JournalImage &image) {
    ClaimAllocated(space, trees.catalog, image.records);
    uint64_t number = 0;
    for (const std::vector<Item> &items : image.records) {
        number++;
        for (const Item &item : items) {
            const std::string problem = ApplyItem(trees, space, item);
            if (!problem.empty()) {
                image.damage = "log record " + std::to_string(number) + " since the checkpoint: " + problem;
                return;
            }
        }
    }
}

} // namespace

uint64_t NextMount(const JournalImage &image) {
    return image.superblock.mounts + 1;
}

LoadedMetadata LoadMetadata(BlockIo &io, uint64_t cache_bytes, CheckPages check) {
    LoadedMetadata loaded;
    loaded.image = ReadJournal(io);
    const TreeSuperblock &superblock = loaded.image.superblock;
    loaded.trees = std::make_unique<MetadataTrees>(io, superblock, NumberInMount(NextMount(loaded.image), 1),
                                                   cache_bytes);
    if (check == CheckPages::ALL) {
        loaded.problems = loaded.trees->FindProblems();
        if (!loaded.problems.empty()) {
            return loaded; // the log is not applied to what contradicts itself
        }
    }
    Replay(*loaded.trees, FindFreeSpace(*loaded.trees, DataArea(superblock)), loaded.image);
    loaded.image.records.clear();
    loaded.trees->zones.Shrink(0); // not used, and free in the space that is found now
    loaded.space = std::make_unique<FreeSpace>(FindFreeSpace(*loaded.trees, DataArea(superblock)));
    return loaded;
}

} // namespace rawduck
