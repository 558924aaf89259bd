//! Snapshots and clones of a database with its logs, made and given up together.

#include "volume/mount/volume_state.hpp"

#include "common/error.hpp"
#include "volume/names/file_name.hpp"
#include "volume/names/snapshot_name.hpp"

#include <algorithm>

namespace rawduck {

namespace {

//! The file of that name and its logs, with the names that they are to have beside `to`. A log of which nothing is durable
//! yet is not there after a crash either.
std::vector<VolumeState::Copy> CopiesOf(const VolumeState &state, const std::string &from,
                                        const std::string &to, CloneKind kind) {
    const std::shared_ptr<File> file = state.Find(from);
    if (!file) {
        state.ThrowNoFile(from);
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
    std::vector<VolumeState::Copy> copies{{file, to, kind}};
    for (const std::string &log : LogNamesOf(from)) {
        const std::shared_ptr<File> found = state.Find(log);
        if (found && found->Published()) {
            copies.push_back({found, to + log.substr(from.size()), kind});
        }
    }
    const std::shared_ptr<File> origin = state.Find(OriginNameOf(from));
    if (kind == CloneKind::SNAPSHOT && file->IsSnapshot() && origin && origin->IsSnapshot()) {
        copies.push_back({origin, OriginNameOf(to), kind});
    }
    return copies;
}

//! Neither the name nor that of what may come to lie beside it is taken.
void RequireFreeName(const VolumeState &state, const std::string &name, CloneKind kind) {
    CheckFileName(state.target.name, name);
    std::vector<std::string> names = LogNamesOf(name);
    names.insert(names.begin(), name);
    if (kind == CloneKind::SNAPSHOT) {
        names.push_back(OriginNameOf(name));
    }
    for (const std::string &taken : names) {
        CheckFileName(state.target.name, taken);
        if (state.Find(taken)) {
            throw Error(ErrorCode::EXISTS, state.target.name + ": \"" + taken + "\" exists already");
        }
    }
}

} // namespace

void VolumeState::MakeCopies(const std::string &from, const std::string &to, CloneKind kind,
                             int64_t created_us, Patience patience) {
    WriteScope writing(*this, patience);
    uint64_t ticket = 0;
    WithRoom([&] {
        std::unique_lock<std::shared_mutex> guard(names_mutex);
        RequireFreeName(*this, to, kind);
        std::vector<Copy> copies = CopiesOf(*this, from, to, kind);
        copies.front().created_us = created_us;
        ticket = QueueClones(copies);
    });
    log.Commit(ticket);
    writing.Finish();
}

// What goes on with it has that locked, in this process.
void VolumeState::RequireNotReceiving(const std::string &name) const {
    const std::string beside = OriginOfReceiving(name);
    const std::shared_ptr<File> origin = Find(beside);
    if (origin && !origin->exclusive_lock) {
        throw Error(ErrorCode::READ_ONLY,
                    target.name + ": \"" + name +
                        "\" is kept of a receive that was cut short, so nothing is written to it: receive "
                        "the rest, or give it up with `rawduck receive --abort`, which removes it (\"" +
                        beside + "\" says how far it is)");
    }
}

void VolumeState::TakeReceived(const std::string &received, const std::string &to,
                               const ReceivedSnapshot &snapshot, const std::vector<const File *> &own) {
    WriteScope writing(*this);
    uint64_t ticket = 0;
    WithRoom([&] {
        std::unique_lock<std::shared_mutex> guard(names_mutex);
        std::vector<Copy> copies = CopiesOf(*this, received, to, CloneKind::WRITABLE);
        if (!snapshot.name.empty()) {
            RequireFreeName(*this, snapshot.name, CloneKind::SNAPSHOT);
            for (Copy &copy : CopiesOf(*this, received, snapshot.name, CloneKind::SNAPSHOT)) {
                copy.created_us = snapshot.created_us;
                copies.push_back(std::move(copy));
            }
            copies.push_back(
                {Find(OriginNameOf(received)), OriginNameOf(snapshot.name), CloneKind::SNAPSHOT});
            if (!copies.back().source) {
                throw Error(ErrorCode::NOT_FOUND, target.name + ": \"" + OriginNameOf(received) +
                                                      "\" was removed while it was needed");
            }
        }
        std::vector<std::shared_ptr<File>> replaced;
        std::vector<std::string> names_taken = LogNamesOf(to);
        names_taken.insert(names_taken.begin(), to);
        for (const std::string &name : names_taken) {
            const std::shared_ptr<File> file = Find(name);
            if (file && std::find(own.begin(), own.end(), file.get()) == own.end()) {
                throw Error(ErrorCode::EXISTS,
                            target.name + ": \"" + name +
                                "\" was made by somebody else meanwhile, and is not replaced; move or "
                                "remove it");
            }
            if (file) {
                replaced.push_back(file);
            }
        }
        ticket = QueueClones(copies, replaced);
    });
    log.Commit(ticket);
    writing.Finish();
}

void VolumeState::DropSnapshot(const std::string &name) {
    WriteScope writing(*this);
    uint64_t ticket = 0;
    {
        std::unique_lock<std::shared_mutex> guard(names_mutex);
        const std::shared_ptr<File> snapshot = Find(name);
        if (!snapshot || !snapshot->IsSnapshot() || !DatabaseOfLog(name).empty() ||
            Find(SnapshotOfOrigin(name))) {
            throw Error(ErrorCode::NOT_FOUND, target.name + ": no snapshot \"" + name +
                                                  "\" on this volume; nvme_snapshots('" + target.name +
                                                  "') lists them");
        }
        std::vector<std::shared_ptr<File>> files{snapshot};
        for (const std::string &log_name : LogNamesOf(name)) {
            const std::shared_ptr<File> found = Find(log_name);
            if (found) {
                files.push_back(found);
            }
        }
        const std::shared_ptr<File> origin = Find(OriginNameOf(name));
        if (origin && origin->IsSnapshot()) {
            files.push_back(origin);
        }
        for (const std::shared_ptr<File> &file : files) {
            if (file->handles > 0) {
                throw Error(ErrorCode::LOCKED, target.name + ": cannot drop \"" + name +
                                                   "\": it is open in this process; DETACH it there first");
            }
        }
        ticket = QueueRemoveTogether(files);
    }
    log.Commit(ticket);
    writing.Finish();
}

} // namespace rawduck
