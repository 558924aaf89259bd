//! What the object class and the helper process say to each other: packets of fixed size over a Unix socket
//! (SOCK_SEQPACKET), with bytes as files in memory beside them. Both ends are of one build, or part at once.
//!
//!   class -> helper   CallPacket     ASK about a call, or HAND_OVER a piece of its data
//!   helper -> class   AnswerPacket   exactly one for each CallPacket
//!   helper -> worker  JobPacket      with all pieces
//!   worker -> helper  ResultPacket   with the encoded reply
#pragma once

#include "ceph/channel/call_key.hpp"
#include "ceph/channel/memory_file.hpp"
#include "ceph/protocol/messages.hpp"

#include <string>
#include <vector>

namespace rawduck_ceph {

constexpr uint32_t CHANNEL_VERSION = 2;
//! A call's data are handed over in pieces, because reading them must not hold the op thread for long.
constexpr uint64_t PIECE_BYTES_MAX = 16 << 20;
constexpr uint32_t PIECES_MAX = 64;
//! Ranges of the object in one piece.
constexpr uint32_t RANGES_MAX = 1 << 16;

struct ByteRange {
    uint64_t offset = 0; //!< in the object
    uint64_t bytes = 0;
};

enum class CallKind : uint32_t { ASK = 1, HAND_OVER = 2 };

//! In the file beside HAND_OVER are the request, then the bytes of `range_count` ranges, then the ByteRanges.
struct CallPacket {
    uint32_t version = CHANNEL_VERSION;
    CallKind kind = CallKind::ASK;
    CallKey key;
    uint64_t request_hash = 0; //!< the same for all objects
    uint64_t object_bytes = 0; //!< size of the object
    uint64_t first_byte = 0;   //!< data bytes in the pieces before
    uint64_t data_bytes = 0;   //!< in this piece
    uint32_t request_bytes = 0;
    uint32_t range_count = 0;
    uint32_t time_ms_max = 0; //!< for the job, of the request
    uint32_t wait_ms = 0;     //!< how long the answer may be waited for
    uint32_t is_last = 0;     //!< no further piece follows
    uint32_t has_footer_crc = 0;
    uint32_t footer_crc = 0;
    uint32_t keeps_reply = 0; //!< the request allows that its reply is kept

    //! Of the file beside it.
    uint64_t FileBytes() const {
        return request_bytes + uint64_t{range_count} * sizeof(ByteRange) + data_bytes;
    }
};
static_assert(sizeof(CallPacket) == 96, "no padding: packets are compared and checked as bytes");

enum class AnswerKind : uint32_t {
    SEND_DATA = 1, //!< the call is not known, or incomplete: `received_bytes` of its data are there
    WORKING = 2,   //!< come again after `retry_ms`
    REPLY = 3,     //!< the encoded reply is the file beside it, of `reply_bytes`
    STATUS = 4     //!< there is no reply but this status and text
};

struct AnswerPacket {
    uint32_t version = CHANNEL_VERSION;
    AnswerKind kind = AnswerKind::STATUS;
    uint64_t received_bytes = 0;
    uint64_t reply_bytes = 0;
    uint32_t retry_ms = 0;
    ReplyStatus status = ReplyStatus::OK;
    char text[130] = {}; //!< ends with a zero
};
static_assert(sizeof(AnswerPacket) == 160, "no padding");

struct JobPacket {
    uint64_t object_bytes = 0;
    uint64_t data_bytes = 0;
    uint32_t piece_count = 0;
    uint32_t has_footer_crc = 0;
    uint32_t footer_crc = 0;
    uint32_t request_bytes = 0;
    uint32_t range_counts[PIECES_MAX] = {};
    uint64_t file_bytes[PIECES_MAX] = {};
};

struct ResultPacket {
    uint64_t reply_bytes = 0;
    uint32_t status = 0;  //!< of the reply, a ReplyStatus
    uint32_t is_last = 0; //!< the worker holds much memory, and wants to be replaced
};

//! Sends without waiting. False when the other end is gone or reads too slowly.
bool SendPacket(int socket, const void *packet, size_t bytes, const std::vector<int> &files = {});

enum class Received { PACKET, NOTHING, CLOSED };
//! Takes a packet of exactly `bytes` and the files beside it, without waiting. CLOSED also for a packet of
//! another size, or with more than `files_max` files.
Received ReceivePacket(int socket, void *packet, size_t bytes, std::vector<OwnedFd> &files, size_t files_max);

//! Waits until the socket can be read. False after `timeout_ms`.
bool WaitReadable(int socket, int timeout_ms);

//! Whether the other end of the socket is a process of this process's own user.
bool IsOwnUser(int socket);

//! Where the helper listens. Throws std::runtime_error when the path is too long for a socket.
std::string SocketPath(const std::string &directory);
int MakeSocket();
//! Creates the directory unless it is there, and checks that only this user can enter it. Throws
//! std::runtime_error, which says what is wrong with it.
void RequirePrivateDirectory(const std::string &directory);

} // namespace rawduck_ceph
