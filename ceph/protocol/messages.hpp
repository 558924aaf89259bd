//! What client and object class say to each other: one request per object, one reply. Both know the same
//! protocol version and the same DuckDB, because the rows travel in DuckDB's own serialization; where they
//! do not, the class says which it has and the client reads the object itself.
//!
//! Both messages are a Frame followed by `body_bytes` of body. Needs no DuckDB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rawduck_ceph {

constexpr uint16_t PROTOCOL_VERSION = 1;

//! A request is at most this long.
constexpr size_t REQUEST_BYTES_MAX = 256 * 1024;
//! Columns, outputs and sort keys of a request: at most this many each.
constexpr uint32_t REQUEST_ITEMS_MAX = 1024;
//! No reply is longer, whatever the request allows.
constexpr uint64_t REPLY_BYTES_MAX = 64 * 1024 * 1024;

//! In front of both messages.
struct Frame {
    char magic[4];    //!< "RDQR" a request, "RDQA" a reply
    uint16_t version; //!< PROTOCOL_VERSION of the sender
    uint16_t reserved;
    uint32_t body_bytes;
    uint32_t crc; //!< CRC32C of this frame (with crc zero) and the body
};
static_assert(sizeof(Frame) == 16, "layout is part of the protocol");

enum class ReplyFormat : uint8_t {
    CHUNKS = 0,    //!< DuckDB's serialized data chunks
    CHUNKS_LZ4 = 1 //!< the same, as one LZ4 block
};

//! A column of the object as the client's plan knows it. The class casts to this type, which does nothing
//! where the object's own type is the same.
struct RequestColumn {
    std::string name;
    std::string type; //!< DuckDB's name of it, such as DECIMAL(15,2)
};

struct RequestOrder {
    uint32_t output = 0; //!< position in `outputs`
    bool descending = false;
    bool nulls_first = false;
};

//! The pushed part of a query: SELECT outputs FROM object WHERE filter [GROUP
//! BY the first `group_count` outputs] [ORDER BY order] [LIMIT limit]. The
//! pieces are SQL expressions over `columns`; the class builds the statement.
struct Request {
    static constexpr uint64_t NO_LIMIT = UINT64_MAX;

    std::string duckdb_version; //!< of the client, such as v2.0.0
    std::vector<RequestColumn> columns;
    std::string filter; //!< empty: every row
    std::vector<std::string> outputs;
    bool aggregate = false; //!< outputs after the first `group_count` are aggregates
    uint32_t group_count = 0;
    std::vector<RequestOrder> order;
    uint64_t limit = NO_LIMIT; //!< rows
    ReplyFormat format = ReplyFormat::CHUNKS;
    uint64_t reply_bytes_max = REPLY_BYTES_MAX; //!< of the payload, before compression
    uint32_t time_ms_max = 10000;
};

enum class ReplyStatus : uint16_t {
    OK = 0,
    VERSION = 1,     //!< another protocol or another DuckDB; the text says which
    BAD_REQUEST = 2, //!< malformed, or something that is not allowed here
    TOO_LARGE = 3,   //!< the answer would exceed reply_bytes_max: read the object yourself
    TOO_SLOW = 4,    //!< time_ms_max passed
    BUSY = 5,        //!< as many requests as this OSD allows are running
    CORRUPT = 6,     //!< the object is not a sound Parquet file; reading it is no better
    FAILED = 7,      //!< DuckDB reported an error (out of memory, an overflow, no such column, …)
    CANNOT_READ = 8  //!< no class can read in this pool, whatever the object
};

//! Name of a status for messages, such as "too large".
const char *ReplyStatusName(ReplyStatus status);

struct Reply {
    ReplyStatus status = ReplyStatus::OK;
    std::string text;           //!< what is wrong, for people; empty when status is OK
    std::string duckdb_version; //!< of the object class
    ReplyFormat format = ReplyFormat::CHUNKS;
    uint64_t row_count = 0;
    uint64_t raw_bytes = 0;  //!< of the payload before compression
    uint64_t read_bytes = 0; //!< of the object
    uint64_t cpu_us = 0;     //!< of the OSD's thread
    std::string payload;
};

std::string EncodeRequest(const Request &request);
std::string EncodeReply(const Reply &reply);

//! Throws ProtocolError for anything malformed; never reads outside. `version` is set as soon as the frame is
//! readable: when it differs from PROTOCOL_VERSION, the rest is not looked at and the result is empty.
Request DecodeRequest(const char *data, size_t length, uint16_t &version);
Reply DecodeReply(const char *data, size_t length, uint16_t &version);

} // namespace rawduck_ceph
