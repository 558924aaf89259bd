#include "volume/journal/load_metadata.hpp"

#include "common/error.hpp"
#include "volume/journal/read_journal.hpp"

namespace rawduck {

namespace {

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
            trees.catalog.Apply(item, problem);
            return problem;
        } catch (const Error &error) {
            const auto take = [&] { return space.AllocateAligned(ZONE_UNITS); };
            if (error.Code() != ErrorCode::NO_SPACE || !trees.zones.Add(take)) {
                throw;
            }
        }
    }
}

//! What records from this one on say does not count.
void TakeLost(JournalImage &image, uint64_t first) {
    for (uint64_t record = first; record < image.records.size(); record++) {
        image.lost.insert(image.lost.end(), image.records[record].begin(), image.records[record].end());
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
                TakeLost(image, number - 1);
                return;
            }
        }
    }
}

} // namespace

// A copy that is damaged may have counted a mount more.
uint64_t NextMount(const JournalImage &image) {
    return image.superblock.mounts + (image.copies[0].valid && image.copies[1].valid ? 1 : 2);
}

LoadedMetadata LoadMetadata(BlockIo &io, uint64_t cache_bytes, CheckPages check) {
    return LoadMetadata(io, ReadJournal(io), cache_bytes, check);
}

LoadedMetadata LoadMetadata(BlockIo &io, const JournalImage &image, uint64_t cache_bytes, CheckPages check,
                            const CatalogTree::VisitFile &visit_file) {
    LoadedMetadata loaded;
    loaded.image = image;
    const TreeSuperblock &superblock = loaded.image.superblock;
    loaded.trees = std::make_unique<MetadataTrees>(io, superblock, NumberInMount(NextMount(loaded.image), 1),
                                                   cache_bytes);
    if (check == CheckPages::ALL) {
        loaded.problems = loaded.trees->FindProblems(visit_file);
        if (!loaded.problems.empty()) {
            return loaded; // the log is not applied to what contradicts itself
        }
    }
    if (!loaded.trees->map_problem.empty()) {
        throw Error(ErrorCode::CORRUPT, io.TargetName() + ": " + loaded.trees->map_problem +
                                            "; `rawduck check` tells what it concerns");
    }
    loaded.trees->catalog.CollectFreed(&loaded.freed);
    Replay(*loaded.trees, FindFreeSpace(*loaded.trees, DataArea(superblock)), loaded.image);
    loaded.trees->catalog.CollectFreed(nullptr);
    loaded.image.records.clear();
    loaded.trees->zones.Clear(); // not used, and free in the space that is found now
    loaded.space = std::make_unique<FreeSpace>(FindFreeSpace(*loaded.trees, DataArea(superblock)));
    return loaded;
}

} // namespace rawduck
