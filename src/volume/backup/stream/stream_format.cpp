#include "volume/backup/stream/stream_format.hpp"

#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "common/little_endian.hpp"
#include "volume/names/file_name.hpp"
#include "volume/names/snapshot_name.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace rawduck {

namespace {

constexpr char MAGIC[] = {'R', 'D', 'S', 'T'};
constexpr size_t CRC_AT = 4;
//! Bytes of a name in a BEGIN record: a file's name has at most 255, a snapshot's 64.
constexpr uint64_t TEXT_BYTES_MAX = 512;
constexpr uint64_t UUID_TEXT_BYTES = 36;

void PutNumber(std::string &bytes, uint64_t number, int count) {
    for (int i = 0; i < count; i++) {
        bytes.push_back(static_cast<char>(number >> (8 * i)));
    }
}

void PutText(std::string &bytes, const std::string &text) {
    PutNumber(bytes, text.size(), 4);
    bytes += text;
}

//! Takes a payload apart from its start. Behind the end, all is zero and Failed().
class Cursor {
  public:
    explicit Cursor(std::string_view bytes) : rest_(bytes) {}
    uint64_t Number(int count) {
        const std::string_view bytes = Bytes(static_cast<uint64_t>(count));
        return bytes.empty() ? 0 : ReadLittleEndian(reinterpret_cast<const uint8_t *>(bytes.data()), count);
    }
    std::string Text() {
        const uint64_t length = Number(4);
        failed_ = failed_ || length > TEXT_BYTES_MAX;
        return std::string(Bytes(failed_ ? 0 : length));
    }
    std::string_view Bytes(uint64_t count) {
        if (failed_ || count > rest_.size()) {
            failed_ = true;
            return {};
        }
        const std::string_view found = rest_.substr(0, count);
        rest_.remove_prefix(count);
        return found;
    }
    bool Failed() const { return failed_; }
    bool EndedWell() const { return !failed_ && rest_.empty(); }
    std::string_view Rest() const { return rest_; }

  private:
    std::string_view rest_;
    bool failed_ = false;
};

void PutIdentity(std::string &bytes, const SnapshotIdentity &identity) {
    PutText(bytes, identity.volume);
    PutNumber(bytes, static_cast<uint64_t>(identity.created_us), 8);
    PutText(bytes, identity.file);
    PutText(bytes, identity.snapshot);
}

SnapshotIdentity TakeIdentity(Cursor &cursor) {
    SnapshotIdentity identity;
    identity.volume = cursor.Text();
    identity.created_us = static_cast<int64_t>(cursor.Number(8));
    identity.file = cursor.Text();
    identity.snapshot = cursor.Text();
    return identity;
}

//! A name that a snapshot can have. Names in a stream become names of files.
bool IsNamed(const SnapshotIdentity &identity) {
    try {
        CheckFileName(identity.volume, identity.file);
        if (identity.snapshot != LATEST) {
            CheckSnapshotName(identity.snapshot);
        }
    } catch (const Error &) {
        return false;
    }
    return identity.volume.size() == UUID_TEXT_BYTES;
}

std::string FindProblemOfFiles(const std::vector<StreamFile> &files) {
    for (const StreamFile &file : files) {
        const bool is_log = !file.ending.empty();
        const bool fits = is_log ? file.kind == FileKind::WAL
                                 : file.kind == FileKind::DATABASE || file.kind == FileKind::OTHER;
        if (!fits || file.size > static_cast<uint64_t>(INT64_MAX)) {
            return "it describes a file that cannot be";
        }
    }
    return "";
}

uint32_t IdentityCrc(const StreamHeader &header) {
    std::string bytes;
    PutIdentity(bytes, header.snapshot);
    PutIdentity(bytes, header.incremental ? header.base : SnapshotIdentity());
    return Crc32c(0, bytes.data(), bytes.size());
}

} // namespace

std::vector<std::string> StreamEndings() {
    std::vector<std::string> endings = LogNamesOf("");
    endings.insert(endings.begin(), "");
    return endings;
}

bool StreamHeader::ContinuesAs(const StreamHeader &other) const {
    return snapshot == other.snapshot && incremental == other.incremental &&
           (!incremental || base == other.base) &&
           std::equal(files.begin(), files.end(), other.files.begin(), other.files.end(),
                      [](const StreamFile &a, const StreamFile &b) {
                          return a.ending == b.ending && a.kind == b.kind && a.size == b.size;
                      });
}

std::string SealStreamRecord(StreamRecordType type, uint64_t sequence, uint64_t stream,
                             std::string_view payload, std::string_view more) {
    std::string bytes(MAGIC, sizeof(MAGIC));
    PutNumber(bytes, 0, 4);
    PutNumber(bytes, static_cast<uint64_t>(type), 4);
    PutNumber(bytes, payload.size() + more.size(), 4);
    PutNumber(bytes, sequence, 8);
    PutNumber(bytes, stream, 8);
    uint32_t crc = Crc32c(0, bytes.data(), bytes.size());
    crc = Crc32c(Crc32c(crc, payload.data(), payload.size()), more.data(), more.size());
    std::string sealed;
    PutNumber(sealed, crc, 4);
    bytes.replace(CRC_AT, 4, sealed);
    return bytes;
}

bool BeginsAsRecord(std::string_view bytes) {
    return bytes.substr(0, sizeof(MAGIC)) == std::string_view(MAGIC, sizeof(MAGIC));
}

bool ParseRecordHeader(std::string_view bytes, StreamRecordHeader &header, std::string &problem) {
    if (bytes.size() != STREAM_HEADER_BYTES || !BeginsAsRecord(bytes)) {
        problem = "no record begins there";
        return false;
    }
    Cursor cursor(bytes.substr(CRC_AT));
    header.crc = static_cast<uint32_t>(cursor.Number(4));
    header.type = static_cast<uint32_t>(cursor.Number(4));
    header.payload_bytes = static_cast<uint32_t>(cursor.Number(4));
    header.sequence = cursor.Number(8);
    header.stream = cursor.Number(8);
    if (header.payload_bytes > STREAM_PAYLOAD_BYTES_MAX) {
        problem = "a record says that it is longer than any is";
        return false;
    }
    return true;
}

bool CheckStreamRecord(std::string_view header, std::string_view payload) {
    std::string bytes(header);
    const uint64_t crc = ReadLittleEndian(reinterpret_cast<const uint8_t *>(bytes.data()) + CRC_AT, 4);
    bytes.replace(CRC_AT, 4, 4, '\0');
    return Crc32c(Crc32c(0, bytes.data(), bytes.size()), payload.data(), payload.size()) == crc;
}

std::string EncodeBegin(const StreamHeader &header) {
    std::string bytes;
    PutNumber(bytes, STREAM_VERSION, 4);
    PutNumber(bytes, 0, 4); // features that a receiver has to know
    PutNumber(bytes, header.incremental ? 1 : 0, 4);
    PutNumber(bytes, header.from.file, 4);
    PutNumber(bytes, header.from.offset, 8);
    PutNumber(bytes, header.data_bytes, 8);
    PutIdentity(bytes, header.snapshot);
    PutIdentity(bytes, header.incremental ? header.base : SnapshotIdentity());
    const std::vector<std::string> endings = StreamEndings();
    PutNumber(bytes, header.files.size(), 4);
    for (const StreamFile &file : header.files) {
        const auto role = std::find(endings.begin(), endings.end(), file.ending);
        PutNumber(bytes, static_cast<uint64_t>(role - endings.begin()), 4);
        PutNumber(bytes, static_cast<uint64_t>(file.kind), 4);
        PutNumber(bytes, file.size, 8);
    }
    return bytes;
}

bool DecodeBegin(std::string_view payload, StreamHeader &header, std::string &problem) {
    Cursor cursor(payload);
    const uint64_t version = cursor.Number(4), features = cursor.Number(4);
    if (cursor.Failed() || version != STREAM_VERSION || features != 0) {
        problem = "it has version " + std::to_string(version) + " and features " + std::to_string(features) +
                  "; this rawduck knows version " + std::to_string(STREAM_VERSION) +
                  " and no features: receive it with a newer one";
        return false;
    }
    const uint64_t incremental = cursor.Number(4);
    header.incremental = incremental == 1;
    header.from.file = static_cast<uint32_t>(cursor.Number(4));
    header.from.offset = cursor.Number(8);
    header.data_bytes = cursor.Number(8);
    header.snapshot = TakeIdentity(cursor);
    header.base = TakeIdentity(cursor);
    const uint64_t count = cursor.Number(4);
    const std::vector<std::string> endings = StreamEndings();
    uint64_t next_role = 0;
    for (uint64_t i = 0; i < std::min<uint64_t>(count, STREAM_FILES_MAX); i++) {
        const uint64_t role = cursor.Number(4);
        StreamFile file;
        const uint64_t kind = cursor.Number(4);
        file.kind = kind <= static_cast<uint64_t>(FileKind::DIRECTORY) ? static_cast<FileKind>(kind)
                                                                       : FileKind::DIRECTORY;
        file.size = cursor.Number(8);
        if (role < next_role || role >= endings.size() || (i == 0 && role != 0)) {
            problem = "the files of it are not a database and its logs";
            return false;
        }
        file.ending = endings[role];
        next_role = role + 1;
        header.files.push_back(std::move(file));
    }
    const bool complete = cursor.EndedWell() && incremental <= 1 && count >= 1 && count <= STREAM_FILES_MAX;
    const bool named = IsNamed(header.snapshot) && (!header.incremental || IsNamed(header.base));
    problem =
        !complete || !named ? "its first record says nothing that can be" : FindProblemOfFiles(header.files);
    if (!problem.empty()) {
        return false;
    }
    const bool at_end = header.from == header.End();
    if (!at_end && (header.from.file >= header.files.size() ||
                    header.from.offset > header.files[header.from.file].size)) {
        problem = "it begins behind its end";
        return false;
    }
    return true;
}

std::string EncodeDataStart(uint32_t file, uint64_t offset) {
    std::string bytes;
    PutNumber(bytes, file, 4);
    PutNumber(bytes, 0, 4);
    PutNumber(bytes, offset, 8);
    return bytes;
}

bool DecodeData(std::string_view payload, StreamRange &range, std::string_view &data, std::string &problem) {
    Cursor cursor(payload);
    range.file = static_cast<uint32_t>(cursor.Number(4));
    const uint64_t reserved = cursor.Number(4);
    range.offset = cursor.Number(8);
    data = cursor.Rest();
    range.length = data.size();
    if (cursor.Failed() || reserved != 0 || data.empty()) {
        problem = "a record of data has none";
        return false;
    }
    return true;
}

std::string EncodeZeros(const StreamRange &range) {
    std::string bytes = EncodeDataStart(range.file, range.offset);
    PutNumber(bytes, range.length, 8);
    return bytes;
}

bool DecodeZeros(std::string_view payload, StreamRange &range, std::string &problem) {
    Cursor cursor(payload);
    range.file = static_cast<uint32_t>(cursor.Number(4));
    const uint64_t reserved = cursor.Number(4);
    range.offset = cursor.Number(8);
    range.length = cursor.Number(8);
    if (!cursor.EndedWell() || reserved != 0 || range.length == 0) {
        problem = "a record of zeros cannot be understood";
        return false;
    }
    return true;
}

std::string EncodeEnd(const StreamEnd &end) {
    std::string bytes;
    PutNumber(bytes, end.records, 8);
    PutNumber(bytes, end.data_bytes, 8);
    PutNumber(bytes, end.crc, 4);
    PutNumber(bytes, 0, 4);
    return bytes;
}

bool DecodeEnd(std::string_view payload, StreamEnd &end, std::string &problem) {
    Cursor cursor(payload);
    end.records = cursor.Number(8);
    end.data_bytes = cursor.Number(8);
    end.crc = static_cast<uint32_t>(cursor.Number(4));
    const uint64_t reserved = cursor.Number(4);
    if (!cursor.EndedWell() || reserved != 0) {
        problem = "its last record cannot be understood";
        return false;
    }
    return true;
}

std::string ResumeToken(const StreamHeader &header, const StreamPosition &position) {
    char check[9];
    snprintf(check, sizeof(check), "%08x", IdentityCrc(header));
    return std::to_string(position.file) + ":" + std::to_string(position.offset) + ":" + check;
}

StreamPosition ParseResumeToken(const StreamHeader &header, const std::string &token) {
    StreamPosition position;
    const char *const end = token.data() + token.size();
    const auto file = std::from_chars(token.data(), end, position.file);
    const bool has_offset = file.ec == std::errc() && file.ptr != end && *file.ptr == ':';
    const auto offset = std::from_chars(has_offset ? file.ptr + 1 : end, end, position.offset);
    const bool within = position == header.End() || (position.file < header.files.size() &&
                                                     position.offset <= header.files[position.file].size);
    if (!has_offset || offset.ec != std::errc() || !within || ResumeToken(header, position) != token) {
        throw Error(ErrorCode::INVALID,
                    "\"" + token + "\" is not where a receive of " + header.snapshot.Name() +
                        (header.incremental ? " since " + header.base.snapshot : "") +
                        " was cut short; `rawduck receive --token <destination>` says where it was, and the "
                        "snapshot and its base have to be those of then");
    }
    return position;
}

} // namespace rawduck
