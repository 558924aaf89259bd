#include "volume/backup/volume_destination.hpp"

#include "common/error.hpp"
#include "common/memory/aligned_buffer.hpp"
#include "common/text/size.hpp"
#include "volume/backup/difference.hpp"
#include "volume/names/path.hpp"
#include "volume/names/snapshot_name.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

//! Read of two files at a time to compare them.
constexpr uint64_t COMPARED_BYTES = 1 * MIB;

OpenMode ExclusiveMode(bool create, FileKind kind) {
    OpenMode mode;
    mode.write = true;
    mode.create = create;
    mode.lock = OpenMode::Lock::EXCLUSIVE;
    mode.kind = kind;
    return mode;
}

//! Whether two files read the same. Of what both have in one place that is known of their metadata. The rest is read: all of a
//! file that was received in full. Where it has changed since, that ends with DuckDB's headers, which lie at its start.
bool ReadTheSame(Volume &volume, const std::string &name, const std::string &other, uint32_t lba_size,
                 const Interrupted &interrupted) {
    const auto is_empty = [&](const std::string &file) {
        FileInfo info;
        return !volume.Stat(file, info) || info.size == 0;
    };
    if (is_empty(name) || is_empty(other)) {
        return is_empty(name) && is_empty(other);
    }
    const auto file = volume.Open(name, OpenMode()), other_file = volume.Open(other, OpenMode());
    const FileLayout layout = file->Layout(), other_layout = other_file->Layout();
    if (layout.size != other_layout.size) {
        return false;
    }
    AlignedBuffer bytes(COMPARED_BYTES), other_bytes(COMPARED_BYTES);
    for (const ChangedRange &range : FindDifference(&other_layout, layout, lba_size)) {
        for (uint64_t done = 0; done < range.length; done += COMPARED_BYTES) {
            if (interrupted && interrupted()) {
                throw Error(ErrorCode::INTERRUPTED, volume.Info().target + ": interrupted");
            }
            const uint64_t piece = std::min(COMPARED_BYTES, range.length - done), at = range.offset + done;
            if (file->Read(bytes.Data(), piece, at) != piece ||
                other_file->Read(other_bytes.Data(), piece, at) != piece ||
                memcmp(bytes.Data(), other_bytes.Data(), piece) != 0) {
                return false;
            }
        }
    }
    return true;
}

//! What has these names and was not left by a receive is somebody's own. An origin with nothing in it tells of nothing.
void RequireLeftByReceive(Volume &volume, const std::string &file) {
    const std::string part = ReceivingNameOf(file), origin = OriginNameOf(part);
    if (ReadOrigin(volume, origin)) {
        return;
    }
    std::vector<std::string> names{origin};
    for (const std::string &ending : StreamEndings()) {
        names.push_back(part + ending);
    }
    for (const std::string &name : names) {
        FileInfo info;
        if (volume.Stat(name, info) && (name != origin || info.size > 0)) {
            throw Error(ErrorCode::EXISTS, volume.Info().target + ": \"" + name +
                                               "\" is not what a receive into \"" + file +
                                               "\" has left, which would be there until it is whole; move it "
                                               "away (`rawduck mv`), or remove it");
        }
    }
}

void RemovePart(Volume &volume, const std::string &file) {
    for (const std::string &ending : StreamEndings()) {
        const std::string name = ReceivingNameOf(file) + ending;
        if (volume.FileExists(name)) {
            volume.Remove(name);
        }
    }
}

} // namespace

VolumeDestination::VolumeDestination(VolumePin volume, std::string file, bool overwrite,
                                     Interrupted interrupted)
    : volume_(std::move(volume)), target_(volume_->Info().target), file_(std::move(file)),
      part_(ReceivingNameOf(file_)), overwrite_(overwrite), interrupted_(std::move(interrupted)) {
    CheckFileName(target_, OriginNameOf(part_));
    if (!DatabaseOfLog(file_).empty()) {
        throw Error(ErrorCode::INVALID, target_ + ": \"" + file_ +
                                            "\" is the name of a log; name the database that is to be "
                                            "received");
    }
}

StreamPosition VolumeDestination::Begin(const StreamHeader &header) {
    RequireNameOfDatabase(header.snapshot.file);
    // Locked first, so that all that follows is done by one receive at a time.
    origin_file_ = volume_->Open(OriginNameOf(part_), ExclusiveMode(true, FileKind::OTHER));
    origin_.header = header;
    origin_.header.from = {};
    const std::string sent = FindSent();
    LockReplaced(sent);
    const std::string base = header.incremental ? FindBase() : "";
    if (!replaced_.empty()) {
        RequireReplaceable(base, sent);
    }
    RequireLeftByReceive(*volume_, file_);
    const std::optional<Origin> part = FindPart(header);
    if (part && !(part->reached == StreamPosition())) {
        origin_ = *part;
    } else {
        BeginPart(base);
    }
    OpenPart();
    return origin_.reached;
}

// Who gives the name of the snapshot means the database, unless that has an "@" in its name where it was sent, too.
void VolumeDestination::RequireNameOfDatabase(const std::string &sent) const {
    const SnapshotName parts = SplitSnapshotName(file_);
    FileInfo info;
    if (volume_->Stat(file_, info) && !info.snapshot) {
        return; // whatever it is called
    }
    const bool has_none = parts.snapshot.empty() || parts.snapshot.find('/') != std::string::npos;
    const auto last_part = [](const std::string &name) { return name.substr(name.rfind('/') + 1); };
    if (has_none || (last_part(sent) == last_part(file_) && !volume_->FileExists(parts.file))) {
        return;
    }
    throw Error(ErrorCode::INVALID, target_ + ": \"" + file_ +
                                        "\" is the name of a snapshot; name the database that is to be "
                                        "received");
}

// One that is refused before it has begun leaves nothing.
VolumeDestination::~VolumeDestination() {
    try {
        if (origin_file_ && origin_file_->Size() == 0) {
            volume_->Remove(OriginNameOf(part_), RemoveMode::OWN);
        }
    } catch (const std::exception &) {
        // An origin with nothing in it says nothing, and the next receive uses it.
    }
}

// The origin is there before what it tells of, and as long as that.
void VolumeDestination::BeginPart(const std::string &base) {
    RemovePart(*volume_, file_);
    origin_file_->Truncate(0);
    RequireRoom();
    WriteOrigin(*origin_file_, origin_);
    if (origin_.header.incremental) {
        volume_->Clone(base, part_);
    }
}

// Holes take space, too.
void VolumeDestination::RequireRoom() const {
    uint64_t needed = origin_.header.incremental ? origin_.header.data_bytes : 0;
    for (const StreamFile &file : origin_.header.files) {
        const uint64_t more = origin_.header.incremental ? 0 : file.size;
        needed = more > UINT64_MAX - needed ? UINT64_MAX : needed + more;
    }
    const uint64_t free = volume_->Info().free_bytes;
    if (free < needed) {
        throw Error(ErrorCode::NO_SPACE, target_ + ": \"" + file_ + "\" needs " + SizeText(needed) +
                                             ", and the volume has " + SizeText(free) +
                                             " free; remove files or snapshots there");
    }
}

// A snapshot that is here already is kept, and the file goes back to it. Empty: the one that the stream has is not.
std::string VolumeDestination::FindSent() const {
    const SnapshotIdentity &sent = origin_.header.snapshot;
    const std::string name = SnapshotFileName(file_, sent.snapshot);
    CheckFileName(target_, LogNamesOf(name).front()); // the longest
    if (sent.snapshot == LATEST || !volume_->FileExists(name)) {
        return "";
    }
    if (!IsReceived(sent)) {
        throw Error(ErrorCode::EXISTS, target_ + ": \"" + name +
                                           "\" is there already, and it is another snapshot than the stream "
                                           "has; drop it (`rawduck rm`) or receive into another file");
    }
    return name;
}

// By what it is: names may be the same by chance, or different on purpose.
std::string VolumeDestination::FindBase() const {
    const SnapshotIdentity &base = origin_.header.base;
    std::string there;
    for (const SnapshotInfo &snapshot : volume_->Snapshots()) {
        if (snapshot.file != file_) {
            continue;
        }
        const std::string name = SnapshotFileName(snapshot.file, snapshot.snapshot);
        if (IdentityOf(*volume_, name) == base) {
            return name;
        }
        there += (there.empty() ? "" : ", ") + snapshot.snapshot;
    }
    throw Error(ErrorCode::INVALID, target_ + ": the stream has what changed since " + base.Name() +
                                        " of the volume " + base.volume +
                                        ", and none of the snapshots of \"" + file_ +
                                        "\" here is that one (" + (there.empty() ? "there are none" : there) +
                                        "); send it in full, or since one that was received here");
}

void VolumeDestination::LockReplaced(const std::string &sent) {
    if (volume_->DirectoryExists(file_)) {
        throw Error(ErrorCode::EXISTS,
                    target_ + ": \"" + file_ + "\" is a directory; name a file, which may be in it");
    }
    std::string taken;
    for (const std::string &ending : StreamEndings()) {
        taken = taken.empty() && volume_->FileExists(file_ + ending) ? file_ + ending : taken;
    }
    if (taken.empty()) {
        return;
    }
    if (sent.empty() && !origin_.header.incremental && !overwrite_) {
        throw Error(ErrorCode::EXISTS,
                    target_ + ": \"" + taken +
                        "\" exists already; choose another name, or pass overwrite := true (rawduck "
                        "receive: --overwrite)");
    }
    for (const std::string &ending : StreamEndings()) {
        if (volume_->FileExists(file_ + ending)) {
            replaced_.push_back(volume_->Open(
                file_ + ending, ExclusiveMode(false, ending.empty() ? FileKind::DATABASE : FileKind::WAL)));
            replaced_.back()->Sync(); // a file of which nothing is durable cannot be given up in a record
        }
    }
    if (!sent.empty() && IsUnchangedSince(sent)) {
        throw Error(ErrorCode::EXISTS, target_ + ": \"" + sent +
                                           "\" is there already, and it is the snapshot that the stream has, "
                                           "of which \"" +
                                           file_ + "\" differs in nothing: there is nothing to receive");
    }
}

// What is locked. What was received in full, or has not been written to, may go on to the next snapshot.
void VolumeDestination::RequireReplaceable(const std::string &base, const std::string &sent) const {
    if (overwrite_ || (!base.empty() && IsUnchangedSince(base))) {
        return;
    }
    if (!sent.empty()) {
        throw Error(ErrorCode::EXISTS,
                    target_ + ": \"" + sent +
                        "\" is there already, and it is the snapshot that the stream has, but \"" + file_ +
                        "\" has changed since. To give that up, pass overwrite := true (rawduck receive: "
                        "--overwrite); to keep it, make a clone of the snapshot under another name "
                        "(nvme_clone, `rawduck clone`), for which no stream is needed");
    }
    throw Error(ErrorCode::INVALID,
                target_ + ": \"" + file_ + "\" has changed since it was " + SplitSnapshotName(base).snapshot +
                    ", and that would be lost; to give it up, pass overwrite := true (rawduck receive: "
                    "--overwrite). To keep it, `rawduck mv` it before, and open what is received with "
                    "READ_ONLY, or a clone of it");
}

// Logs first: they are shorter.
bool VolumeDestination::IsUnchangedSince(const std::string &base) const {
    const uint32_t lba_size = volume_->Info().lba_size;
    const std::vector<std::string> endings = StreamEndings();
    return std::all_of(endings.rbegin(), endings.rend(), [&](const std::string &ending) {
        return ReadTheSame(*volume_, file_ + ending, base + ending, lba_size, interrupted_);
    });
}

bool VolumeDestination::IsReceived(const SnapshotIdentity &snapshot) const {
    const std::string name = SnapshotFileName(file_, snapshot.snapshot);
    return volume_->FileExists(name) && IdentityOf(*volume_, name) == snapshot;
}

std::optional<Origin> VolumeDestination::FindPart(const StreamHeader &header) {
    const std::optional<Origin> part = FindReceived(*volume_, file_);
    const std::string wanted = header.snapshot.Name();
    if (part && part->header.ContinuesAs(header)) {
        if (part->reached < header.from) {
            throw Error(ErrorCode::INVALID, target_ + ": the stream of " + wanted +
                                                " goes on behind what was received "
                                                "here; send it with --resume " +
                                                ResumeToken(part->header, part->reached));
        }
        return part;
    }
    if (part && !IsReceived(part->header.snapshot) && part->header.snapshot.snapshot != LATEST) {
        throw Error(ErrorCode::EXISTS,
                    target_ + ": here a receive of " + part->header.snapshot.Name() +
                        " was cut short, and the stream is of " + wanted +
                        "; send that first, with --resume " + ResumeToken(part->header, part->reached) +
                        ", or give it up: rawduck receive --abort " + VolumePath{target_, file_}.ToString());
    }
    if (!(header.from == StreamPosition())) {
        throw Error(ErrorCode::INVALID,
                    target_ + ": the stream of " + wanted +
                        " goes on where an earlier one was cut off, of which nothing is here; "
                        "send it from its start, without --resume");
    }
    return std::nullopt;
}

void VolumeDestination::OpenPart() {
    const std::vector<StreamFile> &sent = origin_.header.files;
    for (const std::string &ending : StreamEndings()) {
        const bool wanted = std::any_of(sent.begin(), sent.end(),
                                        [&](const StreamFile &file) { return file.ending == ending; });
        if (!wanted && volume_->FileExists(part_ + ending)) {
            volume_->Remove(part_ + ending); // the base has a log that this snapshot has not
        }
    }
    for (const StreamFile &file : sent) {
        OpenMode mode = ExclusiveMode(false, file.kind);
        mode.must_create = !volume_->FileExists(part_ + file.ending); // or it is of the base, or of before
        files_.push_back(volume_->Open(part_ + file.ending, mode));
        if (files_.back()->Size() > file.size) {
            files_.back()->Truncate(file.size);
        }
        files_.back()->Sync();
    }
}

void VolumeDestination::Write(const StreamPiece &piece) {
    OpenFile &file = *files_[piece.range.file];
    if (piece.data) {
        file.Write(piece.data, piece.range.length, piece.range.offset);
        return;
    }
    // What lies behind the end is zeros as soon as the file has it.
    const uint64_t size = file.Size();
    const uint64_t end = std::min(size, piece.range.offset + piece.range.length);
    AlignedBuffer zeros(STREAM_DATA_BYTES_MAX);
    std::memset(zeros.Data(), 0, STREAM_DATA_BYTES_MAX);
    for (uint64_t at = piece.range.offset; at < end;) {
        const uint64_t length = std::min(STREAM_DATA_BYTES_MAX, end - at);
        file.Write(zeros.Data(), length, at);
        at += length;
    }
}

// What was written first, and then that it was.
void VolumeDestination::Keep(const StreamPosition &reached) {
    for (const auto &file : files_) {
        file->Sync();
    }
    origin_.reached = reached;
    WriteOrigin(*origin_file_, origin_);
}

void VolumeDestination::Finish() {
    const StreamHeader &header = origin_.header;
    for (size_t i = 0; i < files_.size(); i++) {
        if (files_[i]->Size() < header.files[i].size) { // it ends with a hole
            files_[i]->Write("", 1, header.files[i].size - 1);
        }
    }
    Keep(header.End());
    const bool makes_snapshot = header.snapshot.snapshot != LATEST && !IsReceived(header.snapshot);
    const ReceivedSnapshot snapshot{makes_snapshot ? SnapshotFileName(file_, header.snapshot.snapshot) : "",
                                    header.snapshot.created_us};
    volume_->TakeReceived(part_, file_, snapshot, replaced_);
    taken_ = true;
    replaced_.clear();
    for (const StreamFile &file : header.files) {
        volume_->Remove(part_ + file.ending, RemoveMode::OWN);
    }
    volume_->Remove(OriginNameOf(part_), RemoveMode::OWN); // last: it says whose the others are
    origin_file_.reset();
    files_.clear();
}

std::string VolumeDestination::AfterFailure() const {
    if (taken_) {
        return ". \"" + file_ + "\" has all that was sent; what is left of \"" + part_ +
               "\" is given up with `rawduck receive --abort " + VolumePath{target_, file_}.ToString() + "`";
    }
    return ". Nothing has the name \"" + file_ + "\" of it. What came is kept as \"" + part_ +
           "\": `rawduck receive --token " + VolumePath{target_, file_}.ToString() +
           "` says how to go on, and with --abort it is given up";
}

std::optional<Origin> FindReceived(Volume &volume, const std::string &file) {
    const std::string part = ReceivingNameOf(file);
    std::optional<Origin> origin = ReadOrigin(volume, OriginNameOf(part));
    const auto is_there = [&](const StreamFile &sent) { return volume.FileExists(part + sent.ending); };
    if (origin && !std::all_of(origin->header.files.begin(), origin->header.files.end(), is_there)) {
        origin->reached = {}; // some of it was removed
    }
    return origin;
}

bool GiveUpReceived(Volume &volume, const std::string &file) {
    const std::string name = OriginNameOf(ReceivingNameOf(file));
    if (!volume.FileExists(name)) {
        RequireLeftByReceive(volume, file);
        return false;
    }
    const auto origin = volume.Open(name, ExclusiveMode(false, FileKind::OTHER));
    RequireLeftByReceive(volume, file);
    RemovePart(volume, file);
    volume.Remove(name, RemoveMode::OWN); // last: it says whose the others are
    return true;
}

} // namespace rawduck
