#include "volume/readers/reader_channel.hpp"

#include "target/stripe.hpp"
#include "volume/names/file_name.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

namespace rawduck {

namespace {

using std::chrono::steady_clock;

constexpr char MAGIC[8] = {'r', 'd', 'r', 'e', 'a', 'd', '0', '3'};
constexpr size_t REQUEST_BYTES_MAX = 1024;      //!< two names, of 255 each
constexpr size_t PIECE_BYTES = 32 * 1024;       //!< of an answer, in one packet
constexpr std::chrono::seconds ANSWER_TIME{10}; //!< for each packet
constexpr std::chrono::seconds SIGNAL_TIME{
    1};                      //!< after that a signal ends the wait for a packet, or that the other is stopped
constexpr int LOOK_MS = 100; //!< how often somebody looks whether the query was interrupted
constexpr std::chrono::seconds TAKING_TIME{5}; //!< for a whole answer: the writer ends no sooner

struct Header {
    char magic[8];
    uint64_t kind;   //!< of a request; 0 in an answer
    uint64_t number; //!< of a request: the byte; of an answer: ANSWERED, ELSEWHERE or the code of an error
    uint64_t bytes;  //!< that follow, of a request in this packet: the subject, 0, the argument
};
constexpr uint64_t ANSWERED = UINT64_MAX, ELSEWHERE = UINT64_MAX - 1;

struct Address {
    explicit Address(const Target &target) {
        const std::string name = "rawduck/" + target.identity;
        value.sun_family = AF_UNIX;
        const size_t bytes = std::min(name.size(), sizeof(value.sun_path) - 1);
        memcpy(value.sun_path + 1, name.data(), bytes); // the first byte is 0: no file is made
        length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
    }
    sockaddr_un value{};
    socklen_t length;
};

FileDescriptor MakeSocket() {
    return FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}

//! Whoever answers decides what is read. So it must be somebody who may: root, this user, or the target's owner.
bool IsTrusted(int connection, int target) {
    ucred peer{};
    socklen_t length = sizeof(peer);
    struct stat status;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           (peer.uid == 0 || peer.uid == geteuid() ||
            (fstat(target, &status) == 0 && peer.uid == status.st_uid));
}

bool SendPacket(int connection, const void *data, size_t bytes, steady_clock::time_point end) {
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(end - steady_clock::now());
    if (left.count() <= 0) {
        return false;
    }
    const timeval limit{left.count() / 1000000, left.count() % 1000000};
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    ssize_t sent;
    do {
        sent = send(connection, data, bytes, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(bytes);
}

//! With a descriptor: whoever has the target open may read it.
bool SendRequest(int connection, int descriptor, const WriterRequest &request) {
    Header header{};
    memcpy(header.magic, MAGIC, sizeof(MAGIC));
    header.kind = static_cast<uint64_t>(request.kind);
    header.number = request.number;
    std::string text = request.subject + '\0' + request.argument;
    header.bytes = text.size();
    iovec parts[2] = {{&header, sizeof(header)}, {&text[0], text.size()}};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr *const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &descriptor, sizeof(descriptor));
    ssize_t sent;
    do {
        sent = sendmsg(connection, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(sizeof(header) + text.size());
}

//! A descriptor that was made with O_PATH says nothing of permissions.
bool MayAsk(int fd, WriterRequest::Kind kind) {
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_PATH) == 0 &&
           ((flags & O_ACCMODE) == O_RDWR || (!ChangesVolume(kind) && (flags & O_ACCMODE) == O_RDONLY));
}

//! Of a packet: the first, open. All others are closed, however many somebody has sent.
FileDescriptor TakeDescriptor(msghdr &message) {
    FileDescriptor first;
    for (cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
            int descriptor = -1;
            memcpy(&descriptor, reinterpret_cast<const char *>(part) + at, sizeof(descriptor));
            FileDescriptor taken(descriptor, FileDescriptor::Closing::KEEPS_POSIX_LOCKS);
            if (!first.IsOpen()) {
                first = std::move(taken);
            }
        }
    }
    return first;
}

bool SendReply(int connection, uint64_t number, const std::string &text) {
    Header header{};
    memcpy(header.magic, MAGIC, sizeof(MAGIC));
    header.number = number;
    header.bytes = text.size();
    const auto end = steady_clock::now() + TAKING_TIME;
    bool sent = SendPacket(connection, &header, sizeof(header), end);
    for (size_t at = 0; sent && at < text.size(); at += PIECE_BYTES) {
        sent = SendPacket(connection, text.data() + at, std::min(PIECE_BYTES, text.size() - at), end);
    }
    return sent;
}

//! The process at the other end if a signal, or a debugger, has stopped it; otherwise 0.
pid_t StoppedPeer(int connection) {
    ucred peer{};
    socklen_t length = sizeof(peer);
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) {
        return 0;
    }
    std::ifstream file("/proc/" + std::to_string(peer.pid) + "/stat"); // number (name) state …
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const size_t state = text.rfind(") ");
    const bool stopped = state != std::string::npos &&
                         (text.compare(state + 2, 1, "T") == 0 || text.compare(state + 2, 1, "t") == 0);
    return stopped ? peer.pid : 0;
}

//! The process that asks, on its way through connecting, asking and receiving.
class Asking {
  public:
    Asking(const Target &target, const WriterRequest &request, const Interrupted &interrupted)
        : target_(target), request_(request), interrupted_(interrupted), connection_(MakeSocket()) {}

    //! False when nobody listens.
    bool Connect() {
        const Address address(target_);
        const timeval limit{0, LOOK_MS * 1000}; // whoever has the name may never accept anybody
        setsockopt(connection_.Get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        begin_ = steady_clock::now();
        while (connect(connection_.Get(), reinterpret_cast<const sockaddr *>(&address.value),
                       address.length) != 0) {
            if (errno != EAGAIN && errno != EINTR) {
                return false;
            }
            GoOn(errno == EINTR);
        }
        return true;
    }
    void Ask(int descriptor) {
        if (!SendRequest(connection_.Get(), descriptor, request_)) {
            ThrowEnded();
        }
    }
    size_t Receive(void *data, size_t bytes) {
        begin_ = steady_clock::now();
        pollfd polled{connection_.Get(), POLLIN, 0};
        for (int ready = 0; ready <= 0;) {
            ready = poll(&polled, 1, LOOK_MS);
            if (ready <= 0) {
                GoOn(ready < 0 && errno == EINTR);
            }
        }
        const ssize_t received = recv(connection_.Get(), data, bytes, MSG_DONTWAIT);
        if (received <= 0) {
            ThrowEnded();
        }
        return static_cast<size_t>(received);
    }
    [[noreturn]] void ThrowEnded() const {
        throw Unanswered(Unanswered::Reason::ENDED, ErrorCode::LOCKED,
                         target_.name +
                             ": the process that has the volume open for writing has ended meanwhile, "
                             "or does not understand this one, which asks it: is it of the same version "
                             "of rawduck? If so, try again" +
                             Uncertain());
    }
    FileDescriptor &Connection() { return connection_; }

  private:
    void GoOn(bool signalled) {
        const auto waited = steady_clock::now() - begin_;
        signalled_ = signalled_ || signalled;
        if ((signalled_ && waited >= SIGNAL_TIME) || (interrupted_ && interrupted_())) {
            throw Error(ErrorCode::INTERRUPTED,
                        target_.name +
                            ": interrupted while the process that has the volume open for writing "
                            "was asked" +
                            Uncertain());
        }
        if (waited >= SIGNAL_TIME) {
            RequireRunning();
        }
        if (waited >= ANSWER_TIME) {
            throw Unanswered(Unanswered::Reason::TOO_LATE, ErrorCode::LOCKED,
                             target_.name +
                                 ": the process that has the volume open for writing did not answer "
                                 "within " +
                                 std::to_string(ANSWER_TIME.count()) + " seconds; try again" + Uncertain());
        }
    }
    void RequireRunning() const {
        if (const pid_t stopped = StoppedPeer(connection_.Get())) {
            throw Unanswered(Unanswered::Reason::TOO_LATE, ErrorCode::LOCKED,
                             target_.name + ": process " + std::to_string(stopped) +
                                 ", which has the volume open for writing, is stopped, so it "
                                 "does not answer: let it go on (kill -CONT " +
                                 std::to_string(stopped) + ", or fg), or end it");
        }
    }
    std::string Uncertain() const {
        return ChangesVolume(request_.kind)
                   ? ". What it was asked to do may be done: `rawduck ls " + target_.name + "` says so"
                   : "";
    }

    const Target &target_;
    const WriterRequest &request_;
    const Interrupted &interrupted_;
    FileDescriptor connection_;
    steady_clock::time_point begin_;
    bool signalled_ = false;
};

//! Names end at the first 0 in a request, and it has room for two.
void CheckNames(const Target &target, const WriterRequest &request) {
    const bool is_root = request.kind == WriterRequest::Kind::LIST && request.subject.empty();
    if (request.kind != WriterRequest::Kind::DESCRIBE && !is_root) {
        CheckFileName(target.name, request.subject);
    }
    if (!request.argument.empty()) {
        CheckFileName(target.name, request.argument);
    }
}

bool IsPart(const Target &target, const std::string &identity) {
    const std::vector<Target> parts = PartsOf(target);
    return std::any_of(parts.begin(), parts.end(),
                       [&](const Target &part) { return part.identity == identity; });
}

//! Whoever is gone was told that it failed.
bool IsGone(int connection) {
    pollfd polled{connection, POLLRDHUP, 0};
    return poll(&polled, 1, 0) != 0;
}

} // namespace

bool ChangesVolume(WriterRequest::Kind kind) {
    switch (kind) {
    case WriterRequest::Kind::READ:
    case WriterRequest::Kind::DESCRIBE:
    case WriterRequest::Kind::LIST:
    case WriterRequest::Kind::IDENTIFY:
        break;
    case WriterRequest::Kind::SNAPSHOT:
    case WriterRequest::Kind::CLONE:
    case WriterRequest::Kind::DROP_SNAPSHOT:
    case WriterRequest::Kind::REMOVE:
    case WriterRequest::Kind::RENAME:
        return true;
    }
    return false; // nor does what is unknown, which is refused with a message
}

std::optional<WriterAnswer> AskWriter(const Target &target, int descriptor, const WriterRequest &request,
                                      const Interrupted &interrupted) {
    CheckNames(target, request);
    Asking asking(target, request, interrupted);
    if (!asking.Connection().IsOpen() || !asking.Connect()) {
        return std::nullopt;
    }
    if (!IsTrusted(asking.Connection().Get(), descriptor)) {
        throw Unanswered(Unanswered::Reason::NOT_ASKED, ErrorCode::PERMISSION,
                         target.name + ": a process of another user, who is neither root nor "
                                       "the target's owner, answers readers; its answers "
                                       "are not used");
    }
    asking.Ask(descriptor);
    Header header{};
    if (asking.Receive(&header, sizeof(header)) != sizeof(header) ||
        memcmp(header.magic, MAGIC, sizeof(MAGIC)) != 0) {
        asking.ThrowEnded();
    }
    WriterAnswer answer;
    std::string piece(PIECE_BYTES, '\0');
    while (answer.text.size() < header.bytes) {
        answer.text.append(piece, 0, asking.Receive(piece.data(), piece.size()));
    }
    if (header.number == ELSEWHERE) {
        throw Unanswered(Unanswered::Reason::ENDED, ErrorCode::LOCKED, answer.text);
    }
    if (header.number != ANSWERED) {
        // Its limit of descriptors is not ours.
        const bool known = header.number <= static_cast<uint64_t>(ErrorCode::INTERRUPTED);
        const ErrorCode code = known ? static_cast<ErrorCode>(header.number) : ErrorCode::IO;
        const char *const who = " (so says the process that has the volume open for writing, of itself)";
        throw Error(code, answer.text + (code == ErrorCode::LOCKED || !known ? who : ""));
    }
    answer.connection = std::move(asking.Connection());
    return answer;
}

FileDescriptor ListenForReaders(const Target &part) {
    FileDescriptor listener = MakeSocket();
    const Address address(part);
    const bool listens =
        listener.IsOpen() &&
        bind(listener.Get(), reinterpret_cast<const sockaddr *>(&address.value), address.length) == 0 &&
        listen(listener.Get(), SOMAXCONN) == 0;
    return listens ? std::move(listener) : FileDescriptor();
}

std::optional<WriterRequest> ReceiveRequest(int connection, const Target &target) {
    char packet[REQUEST_BYTES_MAX];
    iovec part{packet, sizeof(packet)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t received = recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const FileDescriptor sent = received >= 0 ? TakeDescriptor(message) : FileDescriptor();
    struct stat status;
    Header header{};
    if (received < static_cast<ssize_t>(sizeof(header)) || !sent.IsOpen() ||
        fstat(sent.Get(), &status) != 0 || !IsPart(target, IdentityOf(status))) {
        return std::nullopt;
    }
    memcpy(&header, packet, sizeof(header));
    if (memcmp(header.magic, MAGIC, sizeof(MAGIC)) != 0 ||
        header.bytes != static_cast<uint64_t>(received) - sizeof(header)) {
        return std::nullopt;
    }
    const std::string text(packet + sizeof(header), header.bytes);
    const size_t end = text.find('\0');
    const auto kind = static_cast<WriterRequest::Kind>(header.kind);
    if (kind == WriterRequest::Kind::READ && header.number >= ReaderBytes::COUNT) {
        return std::nullopt;
    }
    if (end == std::string::npos || !MayAsk(sent.Get(), kind) || IsGone(connection)) {
        return std::nullopt;
    }
    return WriterRequest{kind, header.number, text.substr(0, end), text.substr(end + 1)};
}

bool SendAnswer(int connection, const std::string &answer) {
    return SendReply(connection, ANSWERED, answer);
}

bool SendRefusal(int connection, ErrorCode code, const std::string &message) {
    return SendReply(connection, static_cast<uint64_t>(code), message);
}

bool SendElsewhere(int connection, const WriterElsewhere &error) {
    return SendReply(connection, ELSEWHERE, error.what());
}

} // namespace rawduck
