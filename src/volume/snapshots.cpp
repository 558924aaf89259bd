#include "volume/volume.hpp"

#include "common/error.hpp"
#include "volume/mount/volume_state.hpp"
#include "volume/names/snapshot_name.hpp"

namespace rawduck {

namespace {

//! The file of that name and its logs, with the names that they are to have beside `to`. A log of which nothing is durable
//! yet is not there after a crash either.
std::vector<VolumeState::Copy> CopiesOf(const VolumeState &state, const std::string &from,
                                        const std::string &to) {
    const std::shared_ptr<File> file = state.Find(from);
    if (!file) {
        throw Error(ErrorCode::NOT_FOUND, state.target.name + ": no file \"" + from +
                                              "\" on this volume; `rawduck ls " + state.target.name +
                                              "` lists them");
    }
    if (file->Kind() == FileKind::DIRECTORY || file->IsTemp() || !DatabaseOfLog(from).empty()) {
        throw Error(ErrorCode::INVALID,
                    state.target.name + ": \"" + from + "\" is a " +
                        (file->Kind() == FileKind::DIRECTORY ? "directory"
                         : file->IsTemp()                    ? "temporary file"
                                                             : "log: name the database that it belongs to") +
                        (DatabaseOfLog(from).empty() ? ", which has no snapshots or clones" : ""));
    }
    if (!file->Published()) {
        throw Error(ErrorCode::INVALID,
                    state.target.name + ": nothing of \"" + from + "\" is durable yet; try again then");
    }
    std::vector<VolumeState::Copy> copies{{file, to}};
    for (const std::string &log : LogNamesOf(from)) {
        const std::shared_ptr<File> found = state.Find(log);
        if (found && found->Published()) {
            copies.push_back({found, to + log.substr(from.size())});
        }
    }
    return copies;
}

//! Neither the name nor that of a log of it is taken.
void RequireFreeName(const VolumeState &state, const std::string &name) {
    CheckFileName(state.target.name, name);
    std::vector<std::string> names = LogNamesOf(name);
    names.push_back(name);
    for (const std::string &taken : names) {
        CheckFileName(state.target.name, taken);
        if (state.Find(taken)) {
            throw Error(ErrorCode::EXISTS, state.target.name + ": \"" + taken + "\" exists already");
        }
    }
}

void MakeCopies(VolumeState &state, const std::string &from, const std::string &to, CloneKind kind) {
    WriteScope writing(state);
    uint64_t ticket = 0;
    state.WithRoom([&] {
        std::unique_lock<std::shared_mutex> guard(state.names_mutex);
        RequireFreeName(state, to);
        ticket = state.QueueClones(CopiesOf(state, from, to), kind);
    });
    state.log.Commit(ticket);
    writing.Finish();
}

} // namespace

void Volume::Snapshot(const std::string &name, const std::string &snapshot) {
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
    MakeCopies(*state_, name, SnapshotFileName(name, snapshot), CloneKind::SNAPSHOT);
}

void Volume::Clone(const std::string &source, const std::string &name) {
    CheckFileName(state_->target.name, source);
    if (!DatabaseOfLog(name).empty()) {
        throw Error(ErrorCode::INVALID, state_->target.name + ": \"" + name +
                                            "\" ends as the name of a log does; choose another");
    }
    MakeCopies(*state_, source, name, CloneKind::WRITABLE);
}

void Volume::DropSnapshot(const std::string &name) {
    WriteScope writing(*state_);
    uint64_t ticket = 0;
    {
        std::unique_lock<std::shared_mutex> guard(state_->names_mutex);
        const std::shared_ptr<File> snapshot = state_->Find(name);
        if (!snapshot || !snapshot->IsSnapshot() || !DatabaseOfLog(name).empty()) {
            throw Error(ErrorCode::NOT_FOUND, state_->target.name + ": no snapshot \"" + name +
                                                  "\" on this volume; nvme_snapshots('" +
                                                  state_->target.name + "') lists them");
        }
        std::vector<std::shared_ptr<File>> files{snapshot};
        for (const std::string &log : LogNamesOf(name)) {
            const std::shared_ptr<File> found = state_->Find(log);
            if (found) {
                files.push_back(found);
            }
        }
        for (const std::shared_ptr<File> &file : files) {
            if (file->handles > 0) {
                throw Error(ErrorCode::LOCKED, state_->target.name + ": cannot drop \"" + name +
                                                   "\": it is open in this process; DETACH it there first");
            }
        }
        ticket = state_->QueueRemoveTogether(files);
    }
    state_->log.Commit(ticket);
    writing.Finish();
}

std::vector<SnapshotInfo> Volume::Snapshots() const {
    std::shared_lock<std::shared_mutex> guard(state_->names_mutex);
    std::vector<SnapshotInfo> snapshots;
    for (const auto &[name, file] : state_->names) {
        if (!file->IsSnapshot() || !DatabaseOfLog(name).empty()) {
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
        snapshots.push_back(std::move(snapshot));
    }
    return snapshots;
}

} // namespace rawduck
