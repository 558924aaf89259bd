#include "volume/backup/sender.hpp"

#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "common/units.hpp"
#include "volume/backup/origin.hpp"
#include "volume/names/snapshot_name.hpp"
#include "volume/reader_mounts.hpp"

#include <algorithm>
#include <random>

namespace rawduck {

namespace {

uint64_t RandomNumber() {
    std::random_device random;
    return static_cast<uint64_t>(random()) << 32 | random();
}

} // namespace

Sender::Sender(const std::string &target, const std::string &file, const SendOptions &options,
               const MountOptions &mount)
    : buffer_(STREAM_DATA_BYTES_MAX) {
    const SnapshotName name = SplitSnapshotName(file);
    if (name.snapshot.empty()) {
        throw Error(ErrorCode::INVALID, target + ": \"" + file +
                                            "\" is no snapshot; take one (`rawduck snapshot`) and send " +
                                            file + "@<name>, or send " + SnapshotFileName(file, LATEST));
    }
    volume_ = PinFor(target, file, this, mount, PinUse::BESIDE);
    header_.stream = RandomNumber();
    header_.snapshot = IdentityOf(*volume_, file);
    std::string base;
    if (!options.since.empty()) {
        CheckSnapshotName(options.since);
        base = SnapshotFileName(name.file, options.since);
        base_volume_ = PinFor(target, base, this, mount, PinUse::BESIDE);
        header_.incremental = true;
        header_.base = IdentityOf(*base_volume_, base);
    }
    OpenFiles(file, base);
    if (!options.resume.empty()) {
        LeaveOut(ParseResumeToken(header_, options.resume));
    }
    for (const Part &part : parts_) {
        header_.data_bytes += part.zeros ? 0 : part.range.length;
    }
}

void Sender::OpenFiles(const std::string &file, const std::string &base) {
    const uint32_t lba_size = volume_->Info().lba_size;
    for (const std::string &ending : StreamEndings()) {
        if (!volume_->FileExists(file + ending)) {
            continue;
        }
        auto opened = volume_->Open(file + ending, OpenMode());
        const FileInfo info = opened->Info();
        if (!info.snapshot &&
            SplitSnapshotName(file).snapshot != LATEST) { // which stays as it is while it is pinned
            throw Error(ErrorCode::INVALID,
                        volume_->Info().target + ": \"" + file + ending + "\" is no snapshot");
        }
        const FileLayout now = opened->Layout();
        FileLayout before;
        const bool has_base = !base.empty() && base_volume_->FileExists(base + ending);
        if (has_base) {
            before = base_volume_->Open(base + ending, OpenMode())->Layout();
        }
        const auto number = static_cast<uint32_t>(files_.size());
        for (const ChangedRange &range : FindDifference(has_base ? &before : nullptr, now, lba_size)) {
            parts_.push_back({{number, range.offset, range.length}, range.zeros});
        }
        header_.files.push_back({ending, info.kind, now.size});
        files_.push_back(std::move(opened));
    }
    if (files_.empty()) {
        throw Error(ErrorCode::NOT_FOUND,
                    volume_->Info().target + ": no snapshot \"" + file + "\" on this volume");
    }
}

void Sender::LeaveOut(const StreamPosition &before) {
    std::vector<Part> rest;
    for (Part part : parts_) {
        const StreamPosition end{part.range.file, part.range.offset + part.range.length};
        if (!(before < end)) {
            continue;
        }
        if (part.range.file == before.file && part.range.offset < before.offset) {
            part.range.length = end.offset - before.offset;
            part.range.offset = before.offset;
        }
        rest.push_back(part);
    }
    parts_ = std::move(rest);
    header_.from = before;
}

void Sender::WriteRecord(ByteSink &sink, StreamRecordType type, std::string_view payload,
                         std::string_view more) {
    const std::string header = SealStreamRecord(type, sequence_++, header_.stream, payload, more);
    for (const std::string_view bytes : {std::string_view(header), payload, more}) {
        crc_ = Crc32c(crc_, bytes.data(), bytes.size());
        stream_bytes_ += bytes.size();
    }
    const std::string start = header + std::string(payload);
    sink.Write(start.data(), start.size());
    if (!more.empty()) {
        sink.Write(more.data(), more.size());
    }
}

bool Sender::SendPiece(ByteSink &sink) {
    if (ended_) {
        return false;
    }
    if (sequence_ == 0) {
        WriteRecord(sink, StreamRecordType::BEGIN, EncodeBegin(header_));
    } else if (next_ < parts_.size()) {
        SendPart(sink);
    } else {
        WriteRecord(sink, StreamRecordType::END, EncodeEnd({sequence_, sent_, crc_}));
        sink.Finish();
        ended_ = true;
    }
    return !ended_;
}

void Sender::SendPart(ByteSink &sink) {
    StreamRange &range = parts_[next_].range;
    if (parts_[next_].zeros) {
        WriteRecord(sink, StreamRecordType::ZEROS, EncodeZeros(range));
        next_++;
        return;
    }
    // Up to a multiple of the length, so that commands begin where the device likes it.
    const uint64_t end = std::min(range.offset + range.length,
                                  AlignDown(range.offset + STREAM_DATA_BYTES_MAX, STREAM_DATA_BYTES_MAX));
    const uint64_t length = end - range.offset;
    if (files_[range.file]->Read(buffer_.Data(), length, range.offset) != length) {
        throw Error(ErrorCode::IO, volume_->Info().target + ": the snapshot ends before byte " +
                                       std::to_string(end) + ", which was to be sent");
    }
    WriteRecord(sink, StreamRecordType::DATA, EncodeDataStart(range.file, range.offset),
                std::string_view(buffer_.Data(), length));
    sent_ += length;
    range.offset += length;
    range.length -= length;
    next_ += range.length == 0 ? 1 : 0;
}

} // namespace rawduck
