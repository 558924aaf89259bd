#include "volume/damage/load_volume.hpp"

#include "common/error.hpp"
#include "volume/damage/overwritten.hpp"
#include "volume/damage/salvage_files.hpp"
#include "volume/journal/read_journal.hpp"

#include <set>

namespace rawduck {

namespace {

std::set<uint64_t> ChangedFiles(const std::vector<std::vector<Item>> &records) {
    std::set<uint64_t> ids;
    for (const std::vector<Item> &items : records) {
        for (const Item &item : items) {
            ids.insert({item.file_id, item.replaced_id});
        }
    }
    return ids;
}

//! The files of the checkpoint become those after the log. Returns what is wrong with them then, though each record was
//! right.
std::vector<std::string> TakeChanges(const CatalogTree &catalog, const std::set<uint64_t> &changed,
                                     VolumeFiles &files) {
    std::vector<std::string> all;
    for (const uint64_t id : changed) {
        if (!catalog.Find(id)) {
            files.entries.erase(id);
            continue;
        }
        CatalogEntry file;
        const std::vector<std::string> problems = catalog.FindProblemsOf(id, file);
        files.entries[id] = problems.empty() ? std::move(file) : catalog.Load(id);
        all.insert(all.end(), problems.begin(), problems.end());
    }
    return all;
}

std::string WarningOf(const JournalImage &image) {
    std::string warning;
    for (int i = 0; i < 2; i++) {
        if (!image.copies[i].valid) {
            warning = "superblock " + std::to_string(i) + " is damaged (" + image.copies[i].problem +
                      "); the other one is in use" +
                      (image.damage.empty() ? ", and the next write repairs it" : "");
        }
    }
    return warning;
}

} // namespace

LoadedVolume LoadVolume(BlockIo &io, uint64_t cache_bytes, CheckAfterLog check_after_log) {
    LoadedVolume volume;
    const JournalImage found = ReadJournal(io);
    VolumeFiles files;
    const auto keep = [&](uint64_t id, CatalogEntry file) {
        files.entries.emplace_hint(files.entries.end(), id, std::move(file));
    };
    volume.metadata = LoadMetadata(io, found, cache_bytes, CheckPages::ALL, keep);
    if (volume.metadata.problems.empty()) {
        const CatalogTree &catalog = volume.metadata.trees->catalog;
        std::shared_lock<std::shared_mutex> guard(volume.metadata.trees->store.Mutex());
        const std::set<uint64_t> changed = ChangedFiles(found.records);
        volume.files = std::move(files);
        volume.metadata.problems = TakeChanges(catalog, changed, volume.files);
        if (check_after_log == CheckAfterLog::ALL && !changed.empty()) {
            volume.metadata.problems = catalog.FindProblems([](const PagePointer &) {});
        }
        const bool says_sharing = (volume.metadata.image.superblock.incompat & INCOMPAT_SHARED) != 0;
        if (!says_sharing && !catalog.References().Empty()) {
            volume.metadata.problems.emplace_back("files share space, which the superblock does not say");
        }
        if (!volume.metadata.image.damage.empty()) {
            volume.metadata.problems.clear(); // they follow from the damage
        }
    } else {
        volume.files = SalvageFiles(io, volume.metadata.image);
        volume.metadata.image.records.clear();
    }
    JournalImage &image = volume.metadata.image;
    if (!image.undecided.empty()) {
        image.damage += ". It is data of " + FileAt(volume.files, image.undecided, image.undecided_offset);
    }
    if (image.damage.empty() && !volume.metadata.problems.empty()) {
        image.damage = volume.metadata.problems.front();
        image.damage_place = "metadata";
    }
    volume.overwritten = FindOverwritten(volume.files, image.lost);
    volume.warning = WarningOf(image);
    return volume;
}

} // namespace rawduck
