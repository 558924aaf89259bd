//! The bytes of a stream that `rawduck send` writes: one snapshot of a file with its logs, or what differs from another one.
//!
//! A stream is records: one BEGIN, any number of DATA and ZEROS in ascending order, one END. Each has a header of 32 bytes
//! and a payload. All numbers are little-endian; docs/BACKUP.md has the layout.
#pragma once

#include "volume/format/file_kind.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rawduck {

constexpr uint32_t STREAM_VERSION = 1;
constexpr uint64_t STREAM_HEADER_BYTES = 32;
//! Of a DATA record.
constexpr uint64_t STREAM_DATA_BYTES_MAX = 1024 * 1024;
constexpr uint64_t STREAM_PAYLOAD_BYTES_MAX = STREAM_DATA_BYTES_MAX + 16;
//! A database and its three logs.
constexpr uint32_t STREAM_FILES_MAX = 4;

enum class StreamRecordType : uint32_t { BEGIN = 1, DATA = 2, ZEROS = 3, END = 4 };

//! Which snapshot it is, wherever copies of it are: one that was received is what it was where it was made.
struct SnapshotIdentity {
    std::string volume; //!< UUID of the volume that it was made on
    std::string file, snapshot;
    int64_t created_us = 0; //!< microseconds since 1970-01-01 UTC

    std::string Name() const { return file + "@" + snapshot; }
    bool operator==(const SnapshotIdentity &other) const {
        return volume == other.volume && file == other.file && snapshot == other.snapshot &&
               created_us == other.created_us;
    }
};

//! What the files of a stream end with behind the database's name, in their order in it: "" first, then logs.
std::vector<std::string> StreamEndings();

//! A file of a stream: the database, or a log of it.
struct StreamFile {
    std::string ending; //!< behind the database's name: "", ".wal.checkpoint", ".wal.recovery" or ".wal"
    FileKind kind = FileKind::OTHER;
    uint64_t size = 0; //!< bytes
};

//! Between two bytes of what a stream is about. Its end is {files.size(), 0}.
struct StreamPosition {
    uint32_t file = 0;
    uint64_t offset = 0;
    bool operator<(const StreamPosition &other) const {
        return file != other.file ? file < other.file : offset < other.offset;
    }
    bool operator==(const StreamPosition &other) const {
        return file == other.file && offset == other.offset;
    }
};

//! What a BEGIN record says.
struct StreamHeader {
    uint64_t stream = 0; //!< a random number that all records of the stream have
    SnapshotIdentity snapshot, base;
    bool incremental = false;      //!< there is a base, and only what differs from it follows
    StreamPosition from;           //!< what lies before was sent in an earlier stream
    uint64_t data_bytes = 0;       //!< in DATA records of this stream
    std::vector<StreamFile> files; //!< the database first

    StreamPosition End() const { return {static_cast<uint32_t>(files.size()), 0}; }
    //! Of one snapshot, and of one difference: what comes at a position is the same.
    bool ContinuesAs(const StreamHeader &other) const;
};

//! A checked record. `payload` ends with the next one that is read.
struct StreamRecord {
    StreamRecordType type = StreamRecordType::BEGIN;
    uint64_t sequence = 0, stream = 0;
    std::string_view payload;
};

struct StreamRange {
    uint32_t file = 0;
    uint64_t offset = 0, length = 0;
};

struct StreamEnd {
    uint64_t records = 0, data_bytes = 0; //!< records: those before
    uint32_t crc = 0;                     //!< of all bytes before
};

//! The header of a record whose payload is these two, one behind the other.
std::string SealStreamRecord(StreamRecordType type, uint64_t sequence, uint64_t stream,
                             std::string_view payload, std::string_view more = {});

std::string EncodeBegin(const StreamHeader &header);
std::string EncodeDataStart(uint32_t file, uint64_t offset);
std::string EncodeZeros(const StreamRange &range);
std::string EncodeEnd(const StreamEnd &end);

//! What a header of STREAM_HEADER_BYTES says; `problem` where it is none, or too long. The payload follows.
struct StreamRecordHeader {
    uint32_t crc = 0, type = 0, payload_bytes = 0;
    uint64_t sequence = 0, stream = 0;
};
//! Of what has at least the first bytes of one.
bool BeginsAsRecord(std::string_view bytes);
bool ParseRecordHeader(std::string_view bytes, StreamRecordHeader &header, std::string &problem);
//! Whether header and payload are what was sealed.
bool CheckStreamRecord(std::string_view header, std::string_view payload);

//! Each says in `problem` what is wrong with a payload whose checksum is right, and returns false then.
bool DecodeBegin(std::string_view payload, StreamHeader &header, std::string &problem);
bool DecodeData(std::string_view payload, StreamRange &range, std::string_view &data, std::string &problem);
bool DecodeZeros(std::string_view payload, StreamRange &range, std::string &problem);
bool DecodeEnd(std::string_view payload, StreamEnd &end, std::string &problem);

//! Where a stream is to go on, as people pass it: "<file>:<offset>:<check>". The check is of what is sent and of its base.
std::string ResumeToken(const StreamHeader &header, const StreamPosition &position);
//! Throws Error INVALID for what is no token of this stream.
StreamPosition ParseResumeToken(const StreamHeader &header, const std::string &token);

} // namespace rawduck
