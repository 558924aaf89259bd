//! What a volume does for readers beside its writer.

#include "volume/mount/volume_state.hpp"

#include "common/error.hpp"
#include "volume/names/snapshot_name.hpp"

namespace rawduck {

ReaderImage VolumeState::BeginReader(const std::string &name, uint64_t number) {
    const std::string kept = SnapshotFileName(name, ReaderSnapshot(number));
    MakeCopies(name, kept, CloneKind::SNAPSHOT);
    return ImageOf(kept);
}

ReaderImage VolumeState::ImageOf(const std::string &name) const {
    ReaderImage image;
    image.superblock = superblock;
    std::vector<std::string> wanted = LogNamesOf(name);
    wanted.insert(wanted.begin(), name);
    std::shared_lock<std::shared_mutex> names_guard(names_mutex);
    std::shared_lock<std::shared_mutex> trees_guard(trees->store.Mutex());
    for (const std::string &part : wanted) {
        const std::shared_ptr<File> file = Find(part);
        if (file && file->Published()) {
            RequireReadable(part);
            image.files.push_back(trees->catalog.Load(file->Id()));
        }
    }
    if (image.files.empty() || image.files[0].name != name) {
        throw Error(ErrorCode::NOT_FOUND, target.name + ": no file \"" + name +
                                              "\" on this volume; `rawduck ls " + target.name +
                                              "` lists them");
    }
    return image;
}

// What cannot be dropped now is tried again with the next event, and by the next mount that writes.
void VolumeState::DropLeftReaders() noexcept {
    try {
        std::vector<std::string> left;
        {
            std::shared_lock<std::shared_mutex> guard(names_mutex);
            for (const auto &[name, file] : names) {
                const std::optional<uint64_t> number = ReaderOf(SplitSnapshotName(name).snapshot);
                if (file->IsSnapshot() && number && !reader_bytes->IsLocked(*number)) {
                    left.push_back(name);
                }
            }
        }
        if (left.empty() || !BeginWriteBesideOthers()) {
            return;
        }
        WriteScope writing(*this, WriteScope::Begun::YES);
        for (const std::string &name : left) {
            DropSnapshot(name);
        }
        writing.Finish();
    } catch (const std::exception &) {
    }
}

} // namespace rawduck
