#include "volume/volume.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "volume/mount/volume_state.hpp"
#include "volume/names/snapshot_name.hpp"

namespace rawduck {

void Volume::Snapshot(const std::string &name, const std::string &snapshot, int64_t created_us) {
    CheckFileName(state_->target.name, name);
    CheckSnapshotName(snapshot);
    {
        std::shared_lock<std::shared_mutex> guard(state_->names_mutex);
        const std::shared_ptr<File> file = state_->Find(name);
        if (file && file->IsSnapshot()) {
            throw Error(ErrorCode::INVALID, state_->target.name + ": \"" + name +
                                                "\" is a snapshot already; make a database of it with "
                                                "nvme_clone, or take a snapshot of what it is one of");
        }
    }
    state_->MakeCopies(name, SnapshotFileName(name, snapshot), CloneKind::SNAPSHOT, created_us);
}

void Volume::Clone(const std::string &source, const std::string &name, int64_t created_us) {
    CheckFileName(state_->target.name, source);
    if (!DatabaseOfLog(name).empty()) {
        throw Error(ErrorCode::INVALID, state_->target.name + ": \"" + name +
                                            "\" ends as the name of a log does; choose another");
    }
    state_->MakeCopies(source, name, CloneKind::WRITABLE, created_us);
}

void Volume::TakeReceived(const std::string &received, const std::string &to,
                          const ReceivedSnapshot &snapshot,
                          const std::vector<std::unique_ptr<OpenFile>> &replaced) {
    CheckFileName(state_->target.name, to);
    std::vector<const File *> own;
    for (const std::unique_ptr<OpenFile> &file : replaced) {
        RAWDUCK_INVARIANT(file->mode_.lock == OpenMode::Lock::EXCLUSIVE, "who replaces a file has it locked");
        own.push_back(file->file_.get());
    }
    state_->TakeReceived(received, to, snapshot, own);
}

void Volume::DropSnapshot(const std::string &name) {
    const std::optional<uint64_t> number = ReaderOf(SplitSnapshotName(name).snapshot);
    if (number && state_->reader_bytes && state_->reader_bytes->IsLocked(*number)) {
        throw Error(ErrorCode::LOCKED,
                    state_->target.name + ": cannot drop \"" + name +
                        "\": a reader in another process has it attached as \"@latest\"; it is "
                        "dropped when that is gone");
    }
    state_->DropSnapshot(name);
}

ReaderImage Volume::BeginReader(const std::string &file, uint64_t number) {
    CheckFileName(state_->target.name, file);
    return state_->BeginReader(file, number);
}

void Volume::DropLeftReaders() noexcept {
    state_->DropLeftReaders();
}

ReaderImage Volume::ImageOf(const std::string &source, const std::string &name) const {
    return state_->ImageOf(source, name);
}

std::vector<SnapshotInfo> Volume::Snapshots() const {
    std::shared_lock<std::shared_mutex> guard(state_->names_mutex);
    std::vector<SnapshotInfo> snapshots;
    for (const auto &[name, file] : state_->names) {
        if (!file->IsSnapshot() || !DatabaseOfLog(name).empty() || state_->Find(SnapshotOfOrigin(name))) {
            continue;
        }
        const FileInfo info = file->Info();
        const SnapshotName parts = SplitSnapshotName(name);
        SnapshotInfo snapshot{parts.file, parts.snapshot,  info.kind,
                              info.size,  info.not_shared, info.created_us};
        for (const std::string &log : LogNamesOf(name)) {
            const std::shared_ptr<File> found = state_->Find(log);
            if (found) {
                const FileInfo log_info = found->Info();
                snapshot.size += log_info.size;
                snapshot.not_shared += log_info.not_shared;
            }
        }
        if (const std::shared_ptr<File> origin = state_->Find(OriginNameOf(name))) {
            snapshot.not_shared += origin->Info().not_shared;
        }
        snapshots.push_back(std::move(snapshot));
    }
    return snapshots;
}

} // namespace rawduck
