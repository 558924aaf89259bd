#include "ceph/channel/packets.hpp"

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace rawduck_ceph {

namespace {

constexpr size_t FILES_MAX = PIECES_MAX;

union ControlBuffer {
    cmsghdr align;
    char bytes[CMSG_SPACE(FILES_MAX * sizeof(int))];
};

} // namespace

bool SendPacket(int socket, const void *packet, size_t bytes, const std::vector<int> &files) {
    iovec part{const_cast<void *>(packet), bytes};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    ControlBuffer control = {};
    if (!files.empty()) {
        if (files.size() > FILES_MAX) {
            return false;
        }
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
        std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(bytes);
}

Received ReceivePacket(int socket, void *packet, size_t bytes, std::vector<OwnedFd> &files,
                       size_t files_max) {
    iovec part{packet, bytes};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    ControlBuffer control = {};
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    ssize_t got;
    do {
        got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK ? Received::NOTHING : Received::CLOSED;
    }
    for (cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
            files.emplace_back(fd);
        }
    }
    const bool cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    if (cut || got != static_cast<ssize_t>(bytes) || files.size() > files_max) {
        files.clear();
        return Received::CLOSED;
    }
    return Received::PACKET;
}

bool WaitReadable(int socket, int timeout_ms) {
    pollfd wanted{socket, POLLIN, 0};
    return poll(&wanted, 1, timeout_ms) > 0;
}

bool IsOwnUser(int socket) {
    ucred peer = {};
    socklen_t length = sizeof(peer);
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

int MakeSocket() {
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

std::string SocketPath(const std::string &directory) {
    const std::string path = directory + "/helper.sock";
    if (path.size() >= sizeof(sockaddr_un::sun_path)) {
        throw std::runtime_error(path + ": the path is too long for a socket; set RAWDUCK_HELPER_DIR");
    }
    return path;
}

void RequirePrivateDirectory(const std::string &directory) {
    if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
        throw std::runtime_error("making " + directory + " for the socket of the helper process: " +
                                 std::strerror(errno) + "; set RAWDUCK_HELPER_DIR");
    }
    struct stat status;
    if (lstat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
        (status.st_mode & 077) != 0) {
        throw std::runtime_error(directory +
                                 " is not a directory that only this user can enter; remove it, or set "
                                 "RAWDUCK_HELPER_DIR to another one");
    }
}

} // namespace rawduck_ceph
