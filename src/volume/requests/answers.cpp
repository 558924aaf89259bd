//! What a volume is asked to do: by other processes while this one has it open for writing, or by this one.

#include "volume/volume.hpp"

#include "common/error.hpp"
#include "volume/mount/volume_state.hpp"
#include "volume/names/snapshot_name.hpp"

#include <atomic>

namespace rawduck {

namespace {

std::atomic<Describer> g_describer{nullptr};

//! Whether `wanted`, the argument of LIST, has this file of that name.
bool IsListed(const VolumeState &state, const std::string &name, const File &file,
              const std::string &wanted) {
    if (wanted == LATEST) {
        return !file.IsSnapshot() && !file.IsTemp() && DatabaseOfLog(name).empty();
    }
    if (wanted.empty() || !file.IsSnapshot()) {
        return true;
    }
    const std::string database = DatabaseOfLog(name);
    const SnapshotName parts = SplitSnapshotName(database.empty() ? name : database);
    return wanted == LIST_NAMED && !ReaderOf(parts.snapshot) && !state.Find(SnapshotOfOrigin(name));
}

//! Each with a 0 behind it. `wanted`: the argument of LIST.
std::string NamesBelow(const VolumeState &state, const std::string &directory, const std::string &wanted) {
    std::string names;
    const std::string prefix = directory.empty() ? "" : directory + "/";
    std::shared_lock<std::shared_mutex> guard(state.names_mutex);
    for (auto entry = state.names.lower_bound(prefix);
         entry != state.names.end() && entry->first.compare(0, prefix.size(), prefix) == 0; ++entry) {
        const File &file = *entry->second;
        if (file.Kind() != FileKind::DIRECTORY && IsListed(state, entry->first, file, wanted)) {
            names += entry->first + '\0';
        }
    }
    return names;
}

//! Which file has that name: its number, and when it was made. Empty when there is none.
std::string IdentityOfFile(const VolumeState &state, const std::string &name) {
    std::shared_lock<std::shared_mutex> guard(state.names_mutex);
    const std::shared_ptr<File> file = state.Find(name);
    return file ? std::to_string(file->Id()) + " " + std::to_string(file->Info().created_us) : "";
}

std::string Joined(const std::vector<std::string> &names) {
    std::string joined;
    for (const std::string &name : names) {
        joined += name + '\0';
    }
    return joined;
}

} // namespace

void SetDescriber(Describer describer) {
    g_describer = describer;
}

std::string Volume::Answer(const WriterRequest &request) {
    switch (request.kind) {
    case WriterRequest::Kind::READ:
        break;
    case WriterRequest::Kind::DESCRIBE: {
        const Describer describer = g_describer;
        if (!describer) {
            throw Error(ErrorCode::UNSUPPORTED,
                        state_->target.name +
                            ": the program that has the volume open for writing has no SQL");
        }
        return describer(*this, request.subject);
    }
    case WriterRequest::Kind::SNAPSHOT:
        Snapshot(request.subject, request.argument, static_cast<int64_t>(request.number));
        return "";
    case WriterRequest::Kind::CLONE:
        Clone(request.subject, request.argument, static_cast<int64_t>(request.number));
        return "";
    case WriterRequest::Kind::DROP_SNAPSHOT:
        DropSnapshot(request.subject);
        return "";
    case WriterRequest::Kind::REMOVE:
        return Joined(RemoveWithLogs(request.subject));
    case WriterRequest::Kind::RENAME:
        Rename(request.subject, request.argument, request.number == 1);
        return "";
    case WriterRequest::Kind::LIST:
        return NamesBelow(*state_, request.subject, request.argument);
    case WriterRequest::Kind::IDENTIFY:
        return IdentityOfFile(*state_, request.subject);
    }
    throw Error(ErrorCode::UNSUPPORTED, state_->target.name +
                                            ": the process that has the volume open for writing does not "
                                            "know what it was asked; is it of the same version of rawduck?");
}

} // namespace rawduck
