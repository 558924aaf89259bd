#include "ceph/helper/supervisor/worker_process.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rawduck_ceph {

namespace {

//! In the child: nothing of the helper's other connections, files and workers stays open.
[[noreturn]] void RunChild(WorkerMain main, int socket, pid_t parent) {
    constexpr int WORKER_SOCKET = STDERR_FILENO + 1;
    if (socket != WORKER_SOCKET) {
        dup2(socket, WORKER_SOCKET);
    }
    syscall(__NR_close_range, WORKER_SOCKET + 1, ~0u, 0); // which older C libraries have no SYS_ name for
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) { // else it has ended before the line above
        main(WORKER_SOCKET);
    }
    _exit(1);
}

} // namespace

void WorkerProcess::Start(WorkerMain main) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        throw std::runtime_error(std::string("making a worker's socket: ") + std::strerror(errno));
    }
    OwnedFd ours(ends[0]), theirs(ends[1]);
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) {
        throw std::runtime_error(std::string("starting a worker: ") + std::strerror(errno));
    }
    if (child == 0) {
        RunChild(main, theirs.Get(), parent);
    }
    socket_ = std::move(ours);
    pid_ = child;
    ready_ = false;
    busy_ = false;
}

void WorkerProcess::Kill() {
    kill(pid_, SIGKILL);
    socket_.Close();
    ready_ = false;
    busy_ = false;
}

bool WorkerProcess::IsGone() {
    if (socket_ || (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0)) {
        return false;
    }
    pid_ = 0;
    return true;
}

bool WorkerProcess::Give(const Job &job) {
    JobPacket packet;
    std::vector<int> files;
    packet.object_bytes = job.call.object_bytes;
    packet.data_bytes = job.received_bytes;
    packet.piece_count = static_cast<uint32_t>(job.pieces.size());
    packet.has_footer_crc = job.call.has_footer_crc;
    packet.footer_crc = job.call.footer_crc;
    packet.request_bytes = job.call.request_bytes;
    for (size_t i = 0; i < job.pieces.size(); i++) {
        files.push_back(job.pieces[i].file.Get());
        packet.range_counts[i] = job.pieces[i].range_count;
        packet.file_bytes[i] = job.pieces[i].file_bytes;
    }
    busy_ = SendPacket(socket_.Get(), &packet, sizeof(packet), files);
    job_ = job.call.key;
    return busy_;
}

Received WorkerProcess::Take(ResultPacket &result, OwnedFd &reply, bool &is_result) {
    std::vector<OwnedFd> files;
    const Received received = ReceivePacket(socket_.Get(), &result, sizeof(result), files, 1);
    if (received != Received::PACKET) {
        return received;
    }
    is_result = ready_;
    ready_ = true;
    if (!is_result) {
        return Received::PACKET;
    }
    const bool is_valid = busy_ && files.size() == 1 && result.reply_bytes > 0 &&
                          result.status <= static_cast<uint32_t>(REPLY_STATUS_LAST) &&
                          IsSealed(files[0].Get(), result.reply_bytes);
    if (!is_valid) {
        return Received::CLOSED;
    }
    reply = std::move(files[0]);
    busy_ = false;
    if (result.is_last) {
        Kill();
    }
    return Received::PACKET;
}

} // namespace rawduck_ceph
