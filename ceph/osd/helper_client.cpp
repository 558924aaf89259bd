#include "ceph/osd/helper_client.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>

namespace rawduck_ceph {

namespace {

int64_t NowMs() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

//! Of this op thread; closed when the thread ends.
thread_local OwnedFd connection;

} // namespace

HelperClient::Answer StatusAnswer(ReplyStatus status, const std::string &text, uint32_t retry_ms) {
    HelperClient::Answer answer;
    answer.packet.kind = status == ReplyStatus::WORKING ? AnswerKind::WORKING : AnswerKind::STATUS;
    answer.packet.status = status;
    answer.packet.retry_ms = retry_ms;
    text.copy(answer.packet.text, sizeof(answer.packet.text) - 1);
    return answer;
}

bool HelperClient::Connect(OwnedFd &socket) {
    const std::string path = SocketPath(process_.Directory());
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    OwnedFd fresh(MakeSocket());
    if (!fresh || connect(fresh.Get(), reinterpret_cast<sockaddr *>(&address), sizeof(address)) != 0) {
        return false;
    }
    if (!IsOwnUser(fresh.Get())) {
        throw std::runtime_error(path + " is listened on by another user's process");
    }
    socket = std::move(fresh);
    return true;
}

HelperClient::Answer HelperClient::Late() {
    connection.Close(); // or the next call would take this call's answer for its own
    const int64_t now = NowMs();
    int64_t since = 0;
    if (late_since_ms_.compare_exchange_strong(since, now) || now - since < HANGS_MS) {
        return StatusAnswer(ReplyStatus::WORKING, "the helper process is late", AFTER_LATE_MS);
    }
    silent_until_ms_ = now + SILENT_MS;
    return StatusAnswer(ReplyStatus::UNAVAILABLE, "the helper process does not answer");
}

HelperClient::Answer HelperClient::Call(const CallPacket &packet, int file) {
    if (NowMs() < silent_until_ms_) {
        return StatusAnswer(ReplyStatus::UNAVAILABLE, "the helper process did not answer a moment ago");
    }
    try {
        const std::vector<int> files = file >= 0 ? std::vector<int>{file} : std::vector<int>();
        bool sent = connection && SendPacket(connection.Get(), &packet, sizeof(packet), files);
        if (!sent) {
            // The helper has ended since the last call, or this is the thread's first one.
            connection.Close();
            if (!Connect(connection)) {
                if (errno == EAGAIN) {
                    return Late(); // its backlog is full: it accepts nobody
                }
                const std::string why = process_.Start();
                return why.empty()
                           ? StatusAnswer(ReplyStatus::WORKING, "the helper process starts", STARTING_MS)
                           : StatusAnswer(ReplyStatus::UNAVAILABLE, why);
            }
            sent = SendPacket(connection.Get(), &packet, sizeof(packet), files);
        }
        if (!sent) {
            connection.Close();
            return StatusAnswer(ReplyStatus::UNAVAILABLE, "the helper process takes no requests");
        }
        Answer answer;
        if (!WaitReadable(connection.Get(), static_cast<int>(packet.wait_ms + LATE_MS))) {
            return Late();
        }
        late_since_ms_ = 0;
        std::vector<OwnedFd> received;
        const auto result =
            ReceivePacket(connection.Get(), &answer.packet, sizeof(answer.packet), received, 1);
        const bool valid = result == Received::PACKET && answer.packet.version == CHANNEL_VERSION &&
                           (answer.packet.kind == AnswerKind::REPLY) == !received.empty();
        if (!valid) {
            connection.Close();
            return StatusAnswer(ReplyStatus::UNAVAILABLE,
                                "the helper process has ended or is of another build");
        }
        answer.packet.text[sizeof(answer.packet.text) - 1] = 0;
        if (!received.empty()) {
            answer.file = std::move(received[0]);
        }
        return answer;
    } catch (const std::exception &error) {
        return StatusAnswer(ReplyStatus::UNAVAILABLE, error.what());
    }
}

} // namespace rawduck_ceph
