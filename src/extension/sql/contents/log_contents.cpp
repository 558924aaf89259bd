#include "extension/sql/contents/database_contents.hpp"

#include "common/error.hpp"
#include "common/memory/aligned_buffer.hpp"
#include "common/units.hpp"

#include "duckdb/common/checksum.hpp"
#include "duckdb/common/optional_idx.hpp"
#include "duckdb/common/serializer/binary_deserializer.hpp"
#include "duckdb/common/serializer/memory_stream.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

//! The first entry of a log says its version, and is shorter than this.
constexpr uint64_t VERSION_BYTES_MAX = 4096;
//! DuckDB: WALType::WAL_VERSION, and what WriteAheadLogDeserializer makes of the number.
constexpr uint8_t VERSION_ENTRY = 98;
constexpr uint64_t WITH_CHECKSUMS = 2, ENCRYPTED = 3;

struct EntryHeader {
    uint64_t bytes, checksum; //!< of what follows
};

struct LogVersion {
    uint64_t version = 0, entry_bytes = 0;
};

//! Throws what DuckDB throws where it is none.
LogVersion ReadVersion(char *data, uint64_t length) {
    duckdb::MemoryStream stream(duckdb::data_ptr_cast(data), length);
    duckdb::BinaryDeserializer deserializer(stream);
    deserializer.Begin();
    const auto type = deserializer.ReadProperty<uint8_t>(100, "wal_type");
    if (type != VERSION_ENTRY) {
        return {1, 0};
    }
    const auto version = deserializer.ReadProperty<duckdb::idx_t>(101, "version");
    deserializer.ReadOptionalList(102, "db_identifier", [](duckdb::Deserializer::List &list, duckdb::idx_t) {
        list.ReadElement<uint8_t>();
    });
    deserializer.ReadPropertyWithDefault<duckdb::optional_idx>(103, "checkpoint_iteration");
    deserializer.End();
    return {version, stream.GetPosition()};
}

} // namespace

// An entry is in memory whole, as it is when DuckDB replays it.
Contents CheckLogContents(StorageFile &file, const std::string &name, const Interrupted &interrupted) {
    Contents found;
    const uint64_t size = file.Size();
    uint64_t at = 0;
    try {
        AlignedBuffer entry(std::min(size, VERSION_BYTES_MAX));
        if (size == 0) {
            return found;
        }
        const LogVersion log = ReadVersion(entry.Data(), file.Read(entry.Data(), entry.Size(), 0));
        if (log.version != WITH_CHECKSUMS) {
            found.note = log.version == ENCRYPTED ? "it is encrypted, and its checksums, too"
                                                  : "its version has no checksums";
            return found;
        }
        for (at = log.entry_bytes; at < size;) {
            if (interrupted && interrupted()) {
                throw Error(ErrorCode::INTERRUPTED, name + ": interrupted");
            }
            EntryHeader header = {};
            const uint64_t left = size - at;
            if (left >= sizeof header) {
                file.Read(&header, sizeof header, at);
            }
            if (left < sizeof header || header.bytes > left - sizeof header) {
                found.doubt = "the entry at byte offset " + std::to_string(at) +
                              " is not whole, so its last " + std::to_string(left) +
                              " bytes are not replayed: they were never acknowledged, or a length is damaged";
                break;
            }
            entry.Resize(header.bytes);
            file.Read(entry.Data(), header.bytes, at + sizeof header);
            if (duckdb::Checksum(reinterpret_cast<const uint8_t *>(entry.Data()), header.bytes) !=
                header.checksum) {
                found.AddProblem("entry at byte offset " + std::to_string(at) + ": its checksum is wrong");
            } else {
                found.checked++;
            }
            at += sizeof header + header.bytes;
        }
    } catch (const Error &error) {
        if (error.Code() == ErrorCode::INTERRUPTED) {
            throw;
        }
        found.AddProblem("entry at byte offset " + std::to_string(at) + ": " + error.what());
    } catch (const duckdb::Exception &) {
        found.AddProblem("its first entry does not say what version it has");
    }
    return found;
}

} // namespace rawduck
