//! The messages between client and object class: one request and one reply per object. Both sides must have
//! the same protocol version and the same DuckDB version, because rows are sent in DuckDB's own
//! serialization. If they differ, the class replies with its versions and the client reads the object itself.
//!
//! A message is a Frame followed by `body_bytes` of body. Free of DuckDB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rawduck_ceph {

constexpr uint16_t PROTOCOL_VERSION = 4;

//! Longer requests are rejected.
constexpr size_t REQUEST_BYTES_MAX = 256 * 1024;
//! Limit of the columns, of the outputs and of the sort keys of a request.
constexpr uint32_t REQUEST_ITEMS_MAX = 1024;
//! Limit of a reply's payload before compression, whatever the request allows.
constexpr uint64_t REPLY_BYTES_MAX = 64 * 1024 * 1024;
//! Longer replies, with their frame, are not kept: reading an object's columns again costs little more than moving
//! them.
constexpr uint64_t KEPT_REPLY_BYTES_MAX = 64 * 1024;

//! The header of a request or a reply.
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

//! A column of the object with its type in the client's plan. The class casts it to this type, which is free
//! where the object's type is the same.
struct RequestColumn {
    std::string name;
    std::string type; //!< in DuckDB's notation, such as DECIMAL(15,2)
};

struct RequestOrder {
    uint32_t output = 0; //!< position in `outputs`
    bool descending = false;
    bool nulls_first = false;
};

//! The pushed part of a query: SELECT outputs FROM object WHERE filter [GROUP BY the first `group_count`
//! outputs] [ORDER BY order] [LIMIT limit]. Outputs and filter are SQL expressions over `columns`, from which
//! the class builds the statement.
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
    //! The reply may be kept for the same request about the same version of the object, and may be such a one.
    bool use_cache = false;
};

enum class ReplyStatus : uint16_t {
    OK = 0,
    VERSION = 1,      //!< another version of the protocol or of DuckDB; `text` says which
    BAD_REQUEST = 2,  //!< malformed, or contains an expression that is not allowed
    TOO_LARGE = 3,    //!< the reply would exceed reply_bytes_max
    TOO_SLOW = 4,     //!< time_ms_max was exceeded
    BUSY = 5,         //!< as many requests run or wait as are allowed, or the op thread has no time for more
    CORRUPT = 6,      //!< the object looks damaged; reading it tells whether it is
    FAILED = 7,       //!< DuckDB reported an error (out of memory, no such column, …)
    CANNOT_READ = 8,  //!< object classes cannot read in this pool
    WORKING = 9,      //!< not finished: send the same request again after `retry_ms`
    UNAVAILABLE = 10, //!< the helper process does not run or does not answer
    //! An expression failed for a value (a cast, an overflow, …). Reading the object may not come to this value.
    EXPRESSION_FAILED = 11
};
constexpr ReplyStatus REPLY_STATUS_LAST = ReplyStatus::EXPRESSION_FAILED;

//! For messages, such as "too large".
const char *ReplyStatusName(ReplyStatus status);

struct Reply {
    ReplyStatus status = ReplyStatus::OK;
    std::string text;           //!< an error message; empty when status is OK
    std::string duckdb_version; //!< of the object class
    ReplyFormat format = ReplyFormat::CHUNKS;
    uint64_t row_count = 0;
    uint64_t raw_bytes = 0;  //!< of the payload before compression
    uint64_t read_bytes = 0; //!< read from the object
    uint64_t cpu_us = 0;     //!< of the helper's worker
    uint32_t retry_ms = 0;   //!< only with WORKING
    bool cached = false;     //!< kept since an earlier request: no worker has run
    std::string payload;
};

std::string EncodeRequest(const Request &request);
std::string EncodeReply(const Reply &reply);

//! Throws ProtocolError for malformed messages. `version` is set from the frame; when it is not
//! PROTOCOL_VERSION, the body is not read and the result is empty.
Request DecodeRequest(const char *data, size_t length, uint16_t &version);
Reply DecodeReply(const char *data, size_t length, uint16_t &version);

} // namespace rawduck_ceph
