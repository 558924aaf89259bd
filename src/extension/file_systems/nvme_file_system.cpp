#include "extension/file_systems/nvme_file_system.hpp"

#include "common/text/pattern.hpp"
#include "extension/file_systems/attach/seen_headers.hpp"
#include "extension/file_systems/errors.hpp"
#include "extension/file_systems/sandbox.hpp"
#include "extension/file_systems/settings.hpp"
#include "volume/names/path.hpp"
#include "volume/names/snapshot_name.hpp"

#include "volume/reader_mounts.hpp"
#include "volume/requests/here_or_ask.hpp"

#include "duckdb/function/scalar/string_common.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_context_state.hpp"
#include "duckdb/main/database.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

namespace rawduck {

using duckdb::FileOpener;
using duckdb::FileOpenFlags;
using duckdb::OpenFileInfo;

namespace {

//! What DuckDB's settings must allow before anybody looks where a path leads.
enum class Wanted { FILE, DIRECTORY };

const std::string &Allowed(const std::string &path, NvmeFileSystem::Opener opener, Wanted wanted) {
    const Sandbox sandbox(opener);
    wanted == Wanted::DIRECTORY ? sandbox.RequireDirectory(path) : sandbox.RequireFile(path);
    return path;
}

//! Whether the file, or the database of a log, is read beside its writer as it is when it is opened.
bool IsOfReader(const std::string &file) {
    const std::string database = DatabaseOfLog(file);
    const std::string &source = database.empty() ? file : database;
    return SourceOfReader(source) != source;
}

//! What a query opens as "@latest", one time after the other, is of one instant: DuckDB reads the headers of a database that it
//! attaches, closes the file, and opens it again for the rest. The main database of an instance is opened outside any query:
//! see PinUse.
class InstantsOfQuery final : public duckdb::ClientContextState {
  public:
    static void Keep(const VolumePath &path, const VolumePin &volume, NvmeFileSystem::Opener opener) {
        const auto context = FileOpener::TryGetClientContext(opener);
        if (context && IsOfReader(path.file)) {
            context->registered_state->GetOrCreate<InstantsOfQuery>("rawduck_instants")->Add(volume);
        }
    }
    void QueryBegin(duckdb::ClientContext &) override { Clear(); }
    void QueryEnd() override { Clear(); }

  private:
    void Add(const VolumePin &volume) {
        std::lock_guard<std::mutex> guard(mutex_);
        const bool known =
            std::any_of(pins_.begin(), pins_.end(), [&](const VolumePin &pin) { return &*pin == &*volume; });
        if (!known) {
            pins_.push_back(volume);
        }
    }
    void Clear() {
        std::vector<VolumePin> ended; // outside the lock
        std::lock_guard<std::mutex> guard(mutex_);
        ended.swap(pins_);
    }

    std::mutex mutex_; //!< guards pins_; no other lock is taken under it
    std::vector<VolumePin> pins_;
};

//! Whether the instance of DuckDB has ended, which opens a file.
OwnerIsGone IsGone(NvmeFileSystem::Opener opener) {
    auto database = FileOpener::TryGetDatabase(opener);
    if (!database) {
        return nullptr;
    }
    duckdb::weak_ptr<duckdb::DatabaseInstance> instance;
    try {
        instance = database->shared_from_this();
    } catch (const std::bad_weak_ptr &) { // it is being destroyed, and closes its files
    }
    return [instance] { return instance.expired(); };
}

//! A path and the volume that it leads to, which stays mounted meanwhile.
struct Location {
    //! One instance of DuckDB opens a database, and then its log: both have to be of one instant. What a query has looked at is
    //! kept for that query, and for no other: see InstantsOfQuery.
    Location(const std::string &path, NvmeFileSystem::Opener opener, Wanted wanted = Wanted::FILE,
             PinUse use = PinUse::LOOK)
        : path(SplitVolumePath(Allowed(path, opener, wanted))),
          volume(PinFor(this->path.target, this->path.file, FileOpener::TryGetDatabase(opener).get(),
                        MountOptionsOf(opener), FileOpener::TryGetClientContext(opener) ? PinUse::OPEN : use,
                        IsGone(opener))) {
        InstantsOfQuery::Keep(this->path, volume, opener);
    }

    VolumePath path;
    VolumePin volume;
};

//! Empty when there is no such file.
std::string HeadersOf(const Location &location) {
    if (!location.volume->FileExists(location.path.file)) {
        return "";
    }
    return HeadersOf(*location.volume->Open(location.path.file, OpenMode()));
}

bool MayBeDatabase(const Location &location) {
    FileInfo info;
    return !location.volume->Stat(location.path.file, info) || info.kind == FileKind::DATABASE;
}

//! A log is read under the lock, and what a reader sees stays as it is.
bool MayChange(const Location &location) {
    return !IsOfReader(location.path.file) && DatabaseOfLog(location.path.file).empty();
}

//! The location keeps the volume as it is for other processes until the file is locked. What DuckDB looks at to attach it need
//! not be there.
void LookAtHeaders(const Location &location, FileOpenFlags flags, NvmeFileSystem::Opener opener) {
    if (!MayChange(location)) {
        return;
    }
    const std::string path = location.path.ToString();
    if (flags.Lock() != duckdb::FileLockType::NO_LOCK) {
        RequireSeenHeaders(opener, path, flags.CreateFileIfNotExists(), [&] { return HeadersOf(location); });
    } else if (flags.ReturnNullIfNotExists() && MayBeDatabase(location)) {
        RememberHeaders(opener, path, [&] { return HeadersOf(location); });
    }
}

bool MatchesComponent(const std::string &component, const std::string &pattern) {
    return duckdb::Glob(component.c_str(), component.size(), pattern.c_str(), pattern.size());
}

std::string Below(const std::string &directory, const std::string &name) {
    return directory.empty() ? name : directory + "/" + name;
}

//! Its last component says so: the name of a snapshot has no slash.
bool MeansSnapshots(const std::string &pattern) {
    const size_t slash = pattern.rfind('/');
    return pattern.find('@', slash == std::string::npos ? 0 : slash) != std::string::npos;
}

//! The files that match a pattern, as whoever has the volume open says. A pattern with "@latest" behind it is one of files that
//! are read so; one without "@" is none of snapshots, which have the same rows as their files.
std::vector<std::string> FilesLike(const VolumePath &pattern, NvmeFileSystem::Opener opener) {
    const std::string files = SourceOfReader(pattern.file);
    const std::string ending = pattern.file.substr(files.size());
    const auto wanted = PathComponents(files);
    // Only the part before the first wildcard has to be listed.
    std::string directory;
    size_t literal = 0;
    while (literal + 1 < wanted.size() && !duckdb::FileSystem::HasGlob(wanted[literal])) {
        directory = Below(directory, wanted[literal++]);
    }
    const char *const wanted_files = !ending.empty()         ? LATEST
                                     : MeansSnapshots(files) ? LIST_NAMED
                                                             : LIST_NO_SNAPSHOTS;
    const WriterRequest request{WriterRequest::Kind::LIST, 0, directory, wanted_files};
    std::vector<std::string> names;
    for (const std::string &name : NamesIn(DoHereOrAsk(pattern.target, request, MountOptionsOf(opener)))) {
        if (name == files || MatchesPattern(PathComponents(name), wanted, MatchesComponent)) {
            names.push_back(name + ending);
        }
    }
    return names;
}

} // namespace

bool NvmeFileSystem::CanHandleFile(const std::string &path) {
    return IsVolumePath(path);
}

std::string NvmeFileSystem::CanonicalizePath(const std::string &path, Opener) {
    return Translated([&] { return CanonicalVolumePath(path); });
}

duckdb::unique_ptr<duckdb::FileHandle> NvmeFileSystem::OpenFile(const std::string &path, FileOpenFlags flags,
                                                                Opener opener) {
    auto file = Translated([&] {
        const bool locks = flags.Lock() != duckdb::FileLockType::NO_LOCK;
        Location location(path, opener, Wanted::FILE, locks ? PinUse::OPEN : PinUse::LOOK);
        const OpenMode mode = OpenModeOf(flags, location.path.file);
        RequireOwnDatabase(path, mode);
        if (flags.OpenForAppending()) { // as DuckDB opens a log; whoever copies one to its place does not
            location.volume->RequireOwnLog(location.path.file, Volume::LogUse::APPEND);
        }
        if (!location.path.file.empty()) {
            LookAtHeaders(location, flags, opener);
        }
        return OpenOrNull(flags,
                          [&] { return OpenPinned(std::move(location.volume), location.path.file, mode); });
    });
    return MakeHandle(path, flags, std::move(file), opener);
}

duckdb::optional<duckdb::FileMetadata> NvmeFileSystem::GetStatsIfExists(const OpenFileInfo &file,
                                                                        Opener opener) {
    return Translated([&]() -> duckdb::optional<duckdb::FileMetadata> {
        Location location(file.path, opener);
        FileInfo info;
        if (!location.path.file.empty() && location.volume->Stat(location.path.file, info)) {
            return ToMetadata(StatusOf(info));
        }
        if (!location.volume->DirectoryExists(location.path.file)) {
            return {};
        }
        duckdb::FileMetadata directory;
        directory.file_type = duckdb::FileType::FILE_TYPE_DIR;
        return directory;
    });
}

bool NvmeFileSystem::FileExists(const std::string &path, Opener opener) {
    return Translated([&] {
        Location location(path, opener);
        if (location.path.file.empty() || location.volume->FileExists(location.path.file)) {
            return !location.path.file.empty();
        }
        if (MayChange(location)) {
            RememberHeaders(opener, location.path.ToString(), [] { return ""; });
        }
        return false;
    });
}

void NvmeFileSystem::RemoveFile(const std::string &path, Opener opener) {
    Translated([&] {
        Location location(path, opener);
        location.volume->RequireOwnLog(location.path.file, Volume::LogUse::REMOVE_OR_MOVE);
        location.volume->Remove(location.path.file);
    });
}

bool NvmeFileSystem::TryRemoveFile(const std::string &path, Opener opener) {
    return Translated([&] {
        Location location(path, opener);
        location.volume->RequireOwnLog(location.path.file, Volume::LogUse::REMOVE_OR_MOVE);
        try {
            location.volume->Remove(location.path.file);
            return true;
        } catch (const Error &error) {
            if (error.Code() != ErrorCode::NOT_FOUND) {
                throw;
            }
            return false;
        }
    });
}

void NvmeFileSystem::RemoveFiles(const duckdb::vector<std::string> &paths, Opener opener) {
    if (paths.empty()) {
        return;
    }
    // Holds the volume of the first, commonly of all, so that it is not mounted anew for each.
    auto first = Translated([&] { return Location(paths[0], opener); });
    for (auto &path : paths) {
        TryRemoveFile(path, opener);
    }
}

void NvmeFileSystem::MoveFile(const std::string &source, const std::string &target, Opener opener) {
    Translated([&] {
        Location from(source, opener), to(target, opener);
        if (&*from.volume != &*to.volume) {
            throw Error(ErrorCode::INVALID,
                        source + ": cannot move it to another volume (" + target +
                            "); CALL nvme_copy(source, destination) and then nvme_remove(source)");
        }
        from.volume->RequireOwnLog(from.path.file, Volume::LogUse::REMOVE_OR_MOVE);
        from.volume->Move(from.path.file, to.path.file);
    });
}

bool NvmeFileSystem::DirectoryExists(const std::string &path, Opener opener) {
    return Translated([&] {
        Location location(path, opener, Wanted::DIRECTORY);
        return location.volume->DirectoryExists(location.path.file);
    });
}

bool NvmeFileSystem::CreateDirectoryExtended(const std::string &path, const duckdb::CreateDirectoryOptions &,
                                             Opener opener) {
    // A directory needs no parent on a volume, so both modes do the same.
    return Translated([&] {
        Location location(path, opener, Wanted::DIRECTORY);
        if (location.volume->DirectoryExists(location.path.file)) {
            return false;
        }
        location.volume->MakeDirectory(location.path.file);
        return true;
    });
}

bool NvmeFileSystem::RemoveDirectoryExtended(const std::string &path,
                                             const duckdb::RemoveDirectoryOptions &options, Opener opener) {
    return Translated([&] {
        Location location(path, opener, Wanted::DIRECTORY);
        return location.volume->RemoveDirectory(location.path.file,
                                                options.mode == duckdb::RemoveDirectoryMode::RECURSIVE);
    });
}

bool NvmeFileSystem::ListFiles(const std::string &path,
                               const std::function<void(const std::string &, bool)> &callback,
                               FileOpener *opener) {
    // Collected first: the callback may call back into this file system.
    std::vector<std::pair<std::string, bool>> entries;
    const bool exists = Translated([&] {
        Location location(path, opener, Wanted::DIRECTORY);
        location.volume->List(location.path.file, [&](const std::string &name, bool is_directory) {
            entries.emplace_back(name, is_directory);
        });
        return location.volume->DirectoryExists(location.path.file);
    });
    for (auto &entry : entries) {
        callback(entry.first, entry.second);
    }
    return exists;
}

duckdb::vector<OpenFileInfo> NvmeFileSystem::Glob(const std::string &pattern, FileOpener *opener) {
    duckdb::vector<OpenFileInfo> result;
    Translated([&] {
        std::vector<std::string> names;
        const VolumePath path = SplitVolumePath(Allowed(pattern, opener, Wanted::FILE));
        if (HasGlob(path.file)) {
            names = FilesLike(path, opener);
        } else if (!path.file.empty() && Location(pattern, opener).volume->FileExists(path.file)) {
            names.push_back(path.file);
        }
        std::sort(names.begin(), names.end());
        const Sandbox sandbox(opener);
        for (auto &name : names) {
            const std::string found = VolumePath{path.target, name}.ToString();
            if (sandbox.MayReachFile(found)) {
                result.emplace_back(found);
            }
        }
    });
    return result;
}

} // namespace rawduck
