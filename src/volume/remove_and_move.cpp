//! Removing files, and giving them other names.

#include "volume/volume.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "volume/mount/volume_state.hpp"
#include "volume/names/file_name.hpp"
#include "volume/names/snapshot_name.hpp"

namespace rawduck {

namespace {

//! For a record about the file, which that of its creation has to precede. Throws NOT_FOUND.
std::shared_ptr<File> FindPublished(const VolumeState &state, const std::string &name,
                                    std::unique_lock<std::shared_mutex> &names_guard) {
    for (;;) {
        const std::shared_ptr<File> file = state.Find(name);
        if (!file) {
            state.ThrowNoFile(name);
        }
        if (file->Published() || file->IsTemp()) {
            return file;
        }
        names_guard.unlock(); // publishing writes
        file->Sync();
        names_guard.lock();
    }
}

//! DuckDB's recovery moves a log that it has put together over the log, and removes what it was put together
//! from next. Both become durable in one record when the first is left to the second: cut between them, a
//! later recovery would merge what is left once more. Were neither durable, recovery would begin anew.
bool IsRecoveredLog(const std::string &from, const std::string &to) {
    return from == to + ".recovery" && KindFromName(to, FileKind::OTHER) == FileKind::WAL;
}

//! DuckDB has the log of an attached database open only from the first commit on. What the log holds, the file may not.
void RequireNoOwner(const VolumeState &state, const std::string &name, const char *what) {
    const std::shared_ptr<File> database = state.Find(DatabaseOfLog(name));
    if (database && (database->exclusive_lock || database->shared_locks > 0)) {
        throw Error(ErrorCode::LOCKED, state.target.name + ": cannot " + what + " \"" + name +
                                           "\": it is the log of a database that is attached; DETACH it "
                                           "there first");
    }
}

void RequireRemovable(const VolumeState &state, const File &file, RemoveMode mode) {
    switch (mode) {
    case RemoveMode::UNLOCKED:
        state.RequireRemovable(file);
        return;
    case RemoveMode::NOBODY_HAS_IT:
        if (file.IsTemp()) {
            throw Error(ErrorCode::LOCKED, state.target.name + ": cannot remove \"" + file.Name() +
                                               "\": it is a temporary file of DuckDB's that is in use");
        }
        state.RequireUnlocked(file, "remove");
        RequireNoOwner(state, file.Name(), "remove");
        return;
    case RemoveMode::OWN:
        RAWDUCK_INVARIANT(file.exclusive_lock, "who removes its own file has that locked");
    }
}

void RequireReplaceable(const VolumeState &state, const File &file, MoveMode mode) {
    switch (mode) {
    case MoveMode::REPLACE:
        state.RequireUnlocked(file, "replace");
        return;
    case MoveMode::REPLACE_OWN:
        RAWDUCK_INVARIANT(file.exclusive_lock, "who replaces its own file has that locked");
        return;
    case MoveMode::NEW_NAME:
        break;
    }
    throw Error(ErrorCode::EXISTS, state.target.name + ": \"" + file.Name() + "\" exists already");
}

//! The logs of a database that are there.
std::vector<std::shared_ptr<File>> LogsOf(const VolumeState &state, const std::string &database) {
    std::vector<std::shared_ptr<File>> logs;
    for (const std::string &name : LogNamesOf(database)) {
        if (const std::shared_ptr<File> log = state.Find(name)) {
            logs.push_back(log);
        }
    }
    return logs;
}

//! Nobody has it, or is writing it; `what` is to be done to it.
void RequireUnused(const VolumeState &state, const File &file, const char *what) {
    const std::string name = file.Name();
    if (file.Kind() == FileKind::DIRECTORY || file.IsTemp()) {
        throw Error(ErrorCode::UNSUPPORTED, state.target.name + ": cannot " + what + " \"" + name +
                                                "\": only files that are not temporary can be moved or "
                                                "replaced; choose another name");
    }
    state.RequireUnlocked(file, what);
    if (file.writers > 0) {
        throw Error(ErrorCode::LOCKED, state.target.name + ": cannot " + what + " \"" + name +
                                           "\": it is being written in this process; wait for the end of "
                                           "that first");
    }
}

//! A file with its logs that is to have another name.
class Renaming {
  public:
    Renaming(VolumeState &state, const std::string &from, const std::string &to, bool replaces)
        : state_(state), from_(from), to_(to), replaces_(replaces) {}

    //! Returns the ticket to commit.
    uint64_t Queue(std::unique_lock<std::shared_mutex> &names_guard) {
        std::shared_ptr<File> file = FindPublished(state_, from_, names_guard);
        for (const std::string &log : LogNamesOf(from_)) {
            if (state_.Find(log)) {
                FindPublished(state_, log, names_guard); // which may let others in
            }
        }
        file = state_.Find(from_);
        if (!file || !file->Published()) {
            state_.ThrowNoFile(from_);
        }
        Take(file, to_);
        if (from_ == to_) {
            return 0;
        }
        if (DatabaseOfLog(from_) == to_ || DatabaseOfLog(to_) == from_) {
            Refuse("a database and its log cannot have each other's name; choose another");
        }
        for (const std::shared_ptr<File> &log : LogsOf(state_, from_)) {
            Take(log, to_ + log->Name().substr(from_.size()));
        }
        GiveWay();
        return state_.QueueMoveTogether(moved_, replaced_);
    }

  private:
    [[noreturn]] void Refuse(const std::string &why, ErrorCode code = ErrorCode::INVALID) const {
        throw Error(code, state_.target.name + ": cannot move \"" + from_ + "\" to \"" + to_ + "\": " + why);
    }
    void Take(const std::shared_ptr<File> &file, const std::string &name) {
        if (!file->Published()) { // a log that was made since the others were looked for
            Refuse("\"" + file->Name() + "\" is being made; try again", ErrorCode::LOCKED);
        }
        state_.RequireNoSnapshot(*file, "moved");
        RequireUnused(state_, *file, "move");
        RequireNoOwner(state_, file->Name(), "move");
        moved_.push_back({file, name});
    }
    //! What has the name, and its logs.
    void GiveWay() {
        const std::shared_ptr<File> file = state_.Find(to_);
        RequireNoOwner(state_, to_, "replace");
        if (file && !replaces_) {
            Refuse(
                "it exists already; choose another name or pass overwrite := true (rawduck mv: --overwrite)",
                ErrorCode::EXISTS);
        }
        replaced_ = LogsOf(state_, to_);
        for (const std::shared_ptr<File> &log : replaced_) {
            if (!file && log->Size() > 0) {
                Refuse(
                    "there is a write-ahead log without its database, " + log->Name() +
                    ", which would be replayed into what is moved there; remove it, or move it away, first");
            }
        }
        if (file) {
            replaced_.push_back(file);
        }
        for (const std::shared_ptr<File> &old : replaced_) {
            state_.RequireNoSnapshot(*old, "replaced");
            RequireUnused(state_, *old, "replace");
        }
    }

    VolumeState &state_;
    const std::string &from_, &to_;
    const bool replaces_;
    std::vector<VolumeState::NewName> moved_;
    std::vector<std::shared_ptr<File>> replaced_;
};

} // namespace

std::vector<std::string> Volume::RemoveWithLogs(const std::string &name) {
    if (!name.empty() && DirectoryExists(name)) {
        if (!RemoveDirectory(name, false)) {
            throw Error(ErrorCode::INVALID, state_->target.name + ": \"" + name +
                                                "\" is a directory that is not empty; remove what is in it "
                                                "first (`rawduck rm --recursive` does)");
        }
        return {name};
    }
    if (!FileExists(name)) {
        state_->ThrowNoFile(name); // without asking for the exclusive lock
    }
    WriteScope writing(*state_);
    uint64_t ticket = 0;
    std::vector<std::string> removed{name};
    {
        std::unique_lock<std::shared_mutex> guard(state_->names_mutex);
        const std::shared_ptr<File> file = state_->Find(name);
        if (!file || file->Kind() == FileKind::DIRECTORY) {
            state_->ThrowNoFile(name);
        }
        state_->RequireNoSnapshot(*file, "removed as other files are");
        RequireRemovable(*state_, *file, RemoveMode::NOBODY_HAS_IT);
        std::vector<std::shared_ptr<File>> files{file};
        if (file->Kind() == FileKind::DATABASE) {
            for (const std::shared_ptr<File> &log : LogsOf(*state_, name)) {
                RequireRemovable(*state_, *log, RemoveMode::NOBODY_HAS_IT);
                removed.push_back(log->Name());
                files.push_back(log);
            }
        }
        ticket = state_->QueueRemoveTogether(files);
    }
    state_->log.Commit(ticket);
    writing.Finish();
    return removed;
}

void Volume::Rename(const std::string &from, const std::string &to, bool replaces) {
    CheckFileName(state_->target.name, to);
    if (!from.empty() && DirectoryExists(from)) {
        throw Error(ErrorCode::INVALID, state_->target.name + ": \"" + from +
                                            "\" is a directory, and only files are moved: name those in it");
    }
    if (!FileExists(from)) {
        state_->ThrowNoFile(from); // without asking for the exclusive lock
    }
    WriteScope writing(*state_);
    uint64_t ticket = 0;
    {
        std::unique_lock<std::shared_mutex> guard(state_->names_mutex);
        ticket = Renaming(*state_, from, to, replaces).Queue(guard);
    }
    state_->log.Commit(ticket);
    writing.Finish();
}

void Volume::RequireOwnLog(const std::string &name, LogUse use) const {
    const std::string database = DatabaseOfLog(name);
    if (database.empty()) {
        return;
    }
    std::shared_lock<std::shared_mutex> guard(state_->names_mutex);
    const std::shared_ptr<File> file = state_->Find(database);
    if (file && !file->exclusive_lock) {
        throw Error(
            ErrorCode::LOCKED,
            state_->target.name + ": \"" + name + "\" is the log of \"" + database +
                "\", which is here and not attached by this process: somebody has made it meanwhile, or "
                "put another volume here; nothing was changed: ATTACH it again. nvme_remove() removes "
                "a log by its name");
    }
    if (!file && use == LogUse::APPEND) {
        throw Error(ErrorCode::LOCKED,
                    state_->target.name + ": \"" + name + "\" is the name of a log of \"" + database +
                        "\", which is not here: another volume is by now where it was attached; nothing was "
                        "changed: put its volume back, or ATTACH it where that is now");
    }
}

void Volume::Remove(const std::string &name, RemoveMode mode) {
    if (!FileExists(name)) {
        state_->ThrowNoFile(name); // without asking for the exclusive lock
    }
    WriteScope writing(*state_);
    uint64_t ticket = 0;
    {
        std::unique_lock<std::shared_mutex> guard(state_->names_mutex);
        auto entry = state_->names.find(name);
        if (entry == state_->names.end() || entry->second->Kind() == FileKind::DIRECTORY) {
            state_->ThrowNoFile(name);
        }
        state_->RequireNoSnapshot(*entry->second, "removed as other files are");
        RequireRemovable(*state_, *entry->second, mode);
        ticket = state_->QueueRemove(entry);
    }
    state_->log.Commit(ticket);
    writing.Finish();
}

void Volume::Move(const std::string &from, const std::string &to, MoveMode mode) {
    CheckFileName(state_->target.name, to);
    WriteScope writing(*state_);
    uint64_t ticket = 0;
    {
        std::unique_lock<std::shared_mutex> guard(state_->names_mutex);
        const std::shared_ptr<File> file = FindPublished(*state_, from, guard);
        auto target = state_->names.find(to);
        const bool same_nature =
            file->Kind() != FileKind::DIRECTORY && !file->IsTemp() &&
            (target == state_->names.end() ||
             (target->second->Kind() != FileKind::DIRECTORY && !target->second->IsTemp()));
        if (!same_nature) {
            throw Error(ErrorCode::UNSUPPORTED, state_->target.name + ": cannot move \"" + from + "\" to \"" +
                                                    to +
                                                    "\": only files that are not temporary can be moved");
        }
        if (from == to) {
            return;
        }
        state_->RequireNoSnapshot(*file, "moved");
        if (target != state_->names.end()) {
            state_->RequireNoSnapshot(*target->second, "replaced");
            RequireReplaceable(*state_, *target->second, mode);
        }
        ticket = state_->QueueMove(file, from, to);
    }
    if (!IsRecoveredLog(from, to)) {
        state_->log.Commit(ticket);
    }
    writing.Finish();
}

} // namespace rawduck
