//! What a volume does for readers beside its writer.

#include "volume/mount/volume_state.hpp"

#include "common/error.hpp"
#include "volume/names/file_name.hpp"
#include "volume/names/snapshot_name.hpp"

namespace rawduck {

ReaderImage VolumeState::BeginReader(const std::string &file, uint64_t number) {
    const std::string source = SourceOfReader(file);
    std::shared_ptr<File> snapshot;
    if (source == file) {
        std::shared_lock<std::shared_mutex> guard(names_mutex);
        snapshot = Find(source);
        if (snapshot && !snapshot->IsSnapshot()) {
            throw Error(ErrorCode::LOCKED, target.name + ": \"" + file +
                                               "\" is no snapshot, and the volume is open for "
                                               "writing; attach \"" +
                                               SnapshotFileName(file, LATEST) +
                                               "\" to read it beside the writer");
        }
    }
    const std::string kept = SnapshotFileName(source, ReaderSnapshot(number));
    MakeCopies(source, kept, CloneKind::SNAPSHOT, 0, Patience::NONE);
    ReaderImage image = ImageOf(kept, file);
    std::shared_lock<std::shared_mutex> guard(names_mutex);
    if (snapshot && Find(source) == snapshot) {
        image.files.front().created_us =
            snapshot->Info().created_us; // of what is kept, and not of what keeps it
    }
    return image;
}

std::string VolumeState::Answer(const WriterRequest &request) {
    if (request.kind == WriterRequest::Kind::READ) {
        CheckFileName(target.name, request.subject);
        // What it is given would be dropped while it reads.
        if (!reader_bytes->IsLocked(request.number)) {
            throw Error(ErrorCode::LOCKED,
                        target.name + ": the writer does not see the lock of the reader that asks; both "
                                      "have to open the target through the same node, or see /sys");
        }
        return EncodeReaderImage(BeginReader(request.subject, request.number));
    }
    return answer_others(request);
}

ReaderImage VolumeState::ImageOf(const std::string &source, const std::string &name) const {
    ReaderImage image;
    image.superblock = Layout();
    std::vector<std::string> parts = LogNamesOf(source);
    parts.insert(parts.begin(), source);
    parts.push_back(OriginNameOf(source));
    std::shared_lock<std::shared_mutex> names_guard(names_mutex);
    std::shared_lock<std::shared_mutex> trees_guard(trees->store.Mutex());
    for (const std::string &part : parts) {
        const std::shared_ptr<File> file = Find(part);
        const bool belongs = part != OriginNameOf(source) || (file && file->IsSnapshot());
        if (file && file->Published() && belongs) {
            RequireReadable(part);
            image.files.push_back(trees->catalog.Load(file->Id()));
            image.files.back().name = name + part.substr(source.size());
        } else if (part == source) {
            ThrowNoFile(source);
        }
    }
    return image;
}

// What cannot be dropped now is tried again with the next event, and by the next mount that writes.
void VolumeState::DropLeftReaders() noexcept {
    if (!reader_bytes) {
        return;
    }
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
            try {
                DropSnapshot(name);
            } catch (const Error &) {
                continue; // somebody here has it open, perhaps; not a reason to keep the others
            }
        }
        writing.Finish();
    } catch (const std::exception &) {
    }
}

} // namespace rawduck
