#include "volume/damage/load_volume.hpp"

#include "common/error.hpp"
#include "volume/damage/overwritten.hpp"
#include "volume/damage/salvage_files.hpp"
#include "volume/journal/read_journal.hpp"

namespace rawduck {

namespace {

VolumeFiles FilesOf(const MetadataTrees &trees) {
    VolumeFiles files;
    trees.catalog.ScanNames("", [&](std::string_view, uint64_t id) {
        files.entries[id] = trees.catalog.Load(id);
        return true;
    });
    return files;
}

//! Everything that is wrong with the trees once the log is applied: with records that are right one by one.
std::vector<std::string> ProblemsAfterLog(const LoadedMetadata &metadata) {
    const bool changed = metadata.image.log.front().records > 0 || metadata.image.log.size() > 1;
    return changed ? metadata.trees->catalog.FindProblems([](const PagePointer &) {})
                   : std::vector<std::string>();
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

LoadedVolume LoadVolume(BlockIo &io, uint64_t cache_bytes) {
    LoadedVolume volume;
    volume.metadata = LoadMetadata(io, ReadJournal(io), cache_bytes, CheckPages::ALL);
    if (volume.metadata.problems.empty()) {
        std::shared_lock<std::shared_mutex> guard(volume.metadata.trees->store.Mutex());
        volume.files = FilesOf(*volume.metadata.trees);
        if (volume.metadata.image.damage.empty()) {
            volume.metadata.problems = ProblemsAfterLog(volume.metadata);
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
