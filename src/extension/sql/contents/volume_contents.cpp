#include "extension/sql/contents/volume_contents.hpp"

#include "extension/file_systems/settings.hpp"
#include "extension/sql/contents/database_contents.hpp"
#include "extension/sql/volume_rows.hpp"
#include "io/resolve_volume.hpp"
#include "volume/names/snapshot_name.hpp"
#include "volume/reader_mounts.hpp"
#include "volume/registry.hpp"
#include "volume/requests/here_or_ask.hpp"

#include "common/error.hpp"

#include "duckdb/main/client_data.hpp"

#include <set>

namespace rawduck {

namespace {

using Severity = CheckFinding::Severity;

class VolumeContents {
  public:
    VolumeContents(duckdb::ClientContext &context, const std::string &target)
        : target_(target), mount_(MountOptionsOf(duckdb::ClientData::Get(context).file_opener.get())),
          interrupted_(InterruptedOf(context)), beside_writer_(WriterAnswers()) {}

    //! With its logs, all as they were at one instant.
    void Check(const std::string &database) {
        try {
            std::string name = database;
            const VolumePin volume = PinToRead(name);
            const std::unique_ptr<OpenFile> file = volume->Open(name, ModeFor(name, database));
            Report(database, CheckDatabaseContents(*file, database, interrupted_), "blocks");
            const std::vector<std::string> logs = LogNamesOf(name), own_logs = LogNamesOf(database);
            for (size_t i = 0; i < logs.size(); i++) {
                if (volume->FileExists(logs[i])) {
                    Report(own_logs[i],
                           CheckLogContents(*volume->Open(logs[i], OpenMode()), own_logs[i], interrupted_),
                           "entries");
                }
            }
        } catch (const Error &error) {
            if (error.Code() == ErrorCode::INTERRUPTED) {
                throw;
            }
            // Such as: removed meanwhile, or in the memory of a process that writes to it.
            Add(Severity::WARNING, database, std::string("not read: ") + error.what());
        }
    }
    void AddUnfinished(const std::string &name) {
        Add(Severity::OK, name,
            "not whole yet, so not checked: a receive was cut off, and can be gone on with");
    }
    std::vector<CheckFinding> Take() { return std::move(findings_); }

  private:
    //! To find out by the lock takes seconds where not every process can be looked at.
    bool WriterAnswers() const {
        const Target target = ResolveVolume(target_, Headers::NOW);
        return !MountedVolume(target.identity) &&
               Ask(target, {WriterRequest::Kind::DESCRIBE, 0, "nvme_info", ""}, interrupted_).has_value();
    }

    //! Where nobody writes to the volume nothing is written for this either. `name`: what it is called there.
    VolumePin PinToRead(std::string &name) {
        const bool database = SplitSnapshotName(name).snapshot.empty();
        if (database && !beside_writer_) {
            try {
                VolumePin volume = PinVolume(target_, mount_);
                volume->Open(name, ModeFor(name, name)); // nobody has it attached for writing
                return volume;
            } catch (const Error &error) {
                if (error.Code() != ErrorCode::LOCKED) {
                    throw;
                }
                beside_writer_ = true;
            }
        }
        if (database) {
            name = SnapshotFileName(name, LATEST);
        }
        return PinFor(target_, name, this, mount_, PinUse::OPEN);
    }

    //! Of what is no snapshot, and no reader's copy: it keeps writers out.
    static OpenMode ModeFor(const std::string &name, const std::string &database) {
        OpenMode mode;
        if (name == database && SplitSnapshotName(name).snapshot.empty()) {
            mode.lock = OpenMode::Lock::SHARED;
        }
        return mode;
    }

    void Report(const std::string &name, const Contents &found, const char *what) {
        for (const std::string &problem : found.problems) {
            Add(Severity::ERROR, name,
                problem + "; what it held is lost here: take it from a backup, or a snapshot");
        }
        if (found.problem_count > found.problems.size()) {
            Add(Severity::ERROR, name,
                std::to_string(found.problem_count - found.problems.size()) + " more such problems");
        }
        if (found.zeros > 0) {
            Add(Severity::WARNING, name,
                std::to_string(found.zeros) +
                    " blocks that nothing says are free have only zeros: they were "
                    "taken for something that was not written in the end, or are lost");
        }
        if (!found.doubt.empty()) {
            Add(Severity::WARNING, name, found.doubt);
        }
        const std::string size =
            found.block_bytes == 0 ? "" : " of " + std::to_string(found.block_bytes) + " bytes in use";
        Add(Severity::OK, name,
            "the checksums of " + std::to_string(found.checked) + " " + what + size + " hold" +
                (found.note.empty() ? "" : ". " + found.note));
    }

    void Add(Severity severity, const std::string &name, std::string detail) {
        findings_.push_back({severity, "contents of " + name, std::move(detail), ""});
    }

    const std::string target_;
    const MountOptions mount_;
    const Interrupted interrupted_;
    bool beside_writer_; //!< that has the volume, or a database of it, open
    std::vector<CheckFinding> findings_;
};

} // namespace

std::vector<CheckFinding> CheckVolumeContents(duckdb::ClientContext &context, const std::string &target) {
    VolumeContents contents(context, target);
    const auto files = RowsOfVolume(context, target, "nvme_files");
    std::set<std::string> names;
    for (const auto &row : files) {
        names.insert(row[0].ToString());
    }
    for (const auto &row : files) {
        const std::string name = row[0].ToString();
        const bool is_of_reader = ReaderOf(SplitSnapshotName(name).snapshot).has_value();
        if (row[1].ToString() != FileKindName(FileKind::DATABASE) || is_of_reader) {
            continue;
        }
        if (names.count(OriginOfReceiving(name)) > 0) {
            contents.AddUnfinished(name);
        } else {
            contents.Check(name);
        }
    }
    return contents.Take();
}

} // namespace rawduck
