#include "volume/backup/origin.hpp"

#include "common/error.hpp"
#include "volume/names/snapshot_name.hpp"

namespace rawduck {

namespace {
//! Of a BEGIN record.
constexpr uint64_t BYTES_MAX = 16 * 1024;
} // namespace

// The BEGIN record of a stream that would go on from there: a format less, and it has a checksum.
void WriteOrigin(OpenFile &file, const Origin &origin) {
    StreamHeader header = origin.header;
    header.from = origin.reached;
    const std::string payload = EncodeBegin(header);
    const std::string bytes =
        SealStreamRecord(StreamRecordType::BEGIN, 0, origin.header.stream, payload) + payload;
    // Always as long: what differs are numbers of a fixed length.
    file.Write(bytes.data(), bytes.size(), 0);
    file.Sync();
}

std::optional<Origin> ReadOrigin(Volume &volume, const std::string &name) {
    if (!volume.FileExists(name)) {
        return std::nullopt;
    }
    const auto file = volume.Open(name, OpenMode());
    std::string bytes(file->Size(), '\0');
    if (bytes.size() < STREAM_HEADER_BYTES || bytes.size() > BYTES_MAX ||
        file->Read(&bytes[0], bytes.size(), 0) != bytes.size()) {
        return std::nullopt;
    }
    const std::string_view head = std::string_view(bytes).substr(0, STREAM_HEADER_BYTES);
    const std::string_view payload = std::string_view(bytes).substr(STREAM_HEADER_BYTES);
    StreamRecordHeader record;
    Origin origin;
    std::string problem;
    const bool valid = ParseRecordHeader(head, record, problem) && record.payload_bytes == payload.size() &&
                       CheckStreamRecord(head, payload) && DecodeBegin(payload, origin.header, problem);
    if (!valid) {
        return std::nullopt;
    }
    origin.header.stream = record.stream;
    origin.reached = origin.header.from;
    return origin;
}

SnapshotIdentity IdentityOf(Volume &volume, const std::string &snapshot_file) {
    FileInfo info, origin_info;
    const std::string target = volume.Info().target;
    if (!volume.Stat(snapshot_file, info)) {
        throw Error(ErrorCode::NOT_FOUND, target + ": no snapshot \"" + snapshot_file +
                                              "\" on this volume; `rawduck ls " + target + "` lists them");
    }
    const std::string beside = OriginNameOf(snapshot_file);
    if (volume.Stat(beside, origin_info) && origin_info.snapshot) {
        const std::optional<Origin> origin = ReadOrigin(volume, beside);
        if (!origin) {
            throw Error(ErrorCode::CORRUPT,
                        target + ": \"" + beside + "\" is damaged, so it is not known which snapshot \"" +
                            snapshot_file + "\" was received of; send and receive it in full");
        }
        return origin->header.snapshot;
    }
    const SnapshotName name = SplitSnapshotName(snapshot_file);
    return {volume.Info().uuid, name.file, name.snapshot, info.created_us};
}

} // namespace rawduck
