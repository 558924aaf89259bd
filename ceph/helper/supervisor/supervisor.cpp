#include "ceph/helper/supervisor/supervisor.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <stdexcept>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace rawduck_ceph {

namespace {

constexpr size_t CLIENTS_MAX = 512;
//! A helper that nobody uses ends after this time; the first OSD has longer to come.
constexpr std::chrono::seconds END_UNUSED_AFTER{2};
constexpr std::chrono::seconds FIRST_USE_WITHIN{15};
//! Of workers that end before they are ready.
constexpr uint32_t FAILED_STARTS_MAX = 5;
constexpr int IDLE_TICK_MS = 500;
//! How often it is checked whether a worker that was killed is gone.
constexpr std::chrono::milliseconds ENDING_TICK{3};
//! Between two lines of the log, which requests can cause.
constexpr std::chrono::seconds LOG_PAUSE{1};
constexpr uint32_t RETRY_MS_MIN = 1, RETRY_MS_MAX = 30, EARLY_MS = 2;

AnswerPacket StatusPacket(ReplyStatus status, const char *text) {
    AnswerPacket packet;
    packet.kind = AnswerKind::STATUS;
    packet.status = status;
    std::strncpy(packet.text, text, sizeof(packet.text) - 1);
    return packet;
}

[[noreturn]] void Fail(const std::string &what) {
    throw std::runtime_error(what + ": " + std::strerror(errno));
}

} // namespace

Supervisor::Supervisor(const SupervisorOptions &options, WorkerMain worker_main)
    : options_(options), worker_main_(worker_main), jobs_(options.jobs), cache_(options.cache_bytes_max),
      workers_(options.jobs.workers) {}

bool Supervisor::Listen() {
    RequirePrivateDirectory(options_.directory);
    const std::string lock_path = options_.directory + "/helper.lock";
    lock_ = OwnedFd(open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock_) {
        Fail("opening " + lock_path);
    }
    if (flock(lock_.Get(), LOCK_EX | LOCK_NB) != 0) {
        return false;
    }
    const std::string path = SocketPath(options_.directory);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    unlink(path.c_str()); // of a helper that was killed: the lock says that nobody listens
    listener_ = OwnedFd(MakeSocket());
    if (!listener_ || bind(listener_.Get(), reinterpret_cast<sockaddr *>(&address), sizeof(address)) != 0 ||
        listen(listener_.Get(), SOMAXCONN) != 0) {
        Fail("listening on " + path);
    }
    epoll_ = OwnedFd(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_) {
        Fail("making an epoll instance");
    }
    Watch(listener_.Get());
    return true;
}

void Supervisor::Watch(int fd) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(epoll_.Get(), EPOLL_CTL_ADD, fd, &event) != 0) {
        Fail("watching a socket");
    }
}

void Supervisor::Serve() {
    now_ = Clock::now();
    used_ = now_ + FIRST_USE_WITHIN;
    StartWorkers();
    epoll_event events[64];
    for (;;) {
        const int count = epoll_wait(epoll_.Get(), events, 64, NextTimeoutMs());
        now_ = Clock::now();
        for (int i = 0; i < count; i++) {
            Dispatch(events[i].data.fd);
        }
        EndSlowJobs();
        StartWorkers();
        jobs_.Expire(now_);
        GiveJobs();
        AnswerLateClients();
        used_ = clients_.empty() ? used_ : now_;
        if (options_.end_when_unused && now_ > used_ + END_UNUSED_AFTER) {
            return;
        }
    }
}

void Supervisor::Dispatch(int fd) {
    if (fd == listener_.Get()) {
        AcceptClients();
        return;
    }
    auto worker = std::find_if(workers_.begin(), workers_.end(),
                               [fd](const WorkerProcess &one) { return one.Socket() == fd; });
    if (worker != workers_.end()) {
        ServeWorker(*worker);
        return;
    }
    auto client = clients_.find(fd);
    if (client != clients_.end() && !ServeClient(client->second)) {
        clients_.erase(client);
    }
}

int Supervisor::NextTimeoutMs() {
    auto next = now_ + std::chrono::milliseconds(IDLE_TICK_MS);
    for (const auto &client : clients_) {
        next = client.second.waits ? std::min(next, client.second.until) : next;
    }
    for (const WorkerProcess &worker : workers_) {
        const Job *job = worker.IsBusy() ? jobs_.Find(worker.JobKey()) : nullptr;
        next = job ? std::min(next, jobs_.DeadlineOf(*job)) : next;
        next = worker.IsEnding() ? std::min(next, now_ + ENDING_TICK) : next;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

void Supervisor::AcceptClients() {
    for (;;) {
        OwnedFd socket(accept4(listener_.Get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket) {
            return;
        }
        if (clients_.size() >= CLIENTS_MAX || !IsOwnUser(socket.Get())) {
            continue; // closed: the class then says that the helper has ended
        }
        const int fd = socket.Get();
        Watch(fd);
        clients_[fd].socket = std::move(socket);
    }
}

bool Supervisor::ServeClient(Client &client) {
    CallPacket call;
    std::vector<OwnedFd> files;
    const Received received = ReceivePacket(client.socket.Get(), &call, sizeof(call), files, 1);
    if (received == Received::NOTHING) {
        return true;
    }
    if (received == Received::CLOSED || call.version != CHANNEL_VERSION || client.waits) {
        ForgetAnswer(client);
        return false;
    }
    client.sends_data = client.was_answered = false;
    if (call.kind == CallKind::ASK && files.empty()) {
        AnswerAsk(client, call);
    } else if (call.kind == CallKind::HAND_OVER && files.size() == 1) {
        AnswerHandOver(client, call, std::move(files[0]));
    } else {
        return false;
    }
    return true;
}

uint64_t Supervisor::ExpectedBytes() const {
    return PIECE_BYTES_MAX *
           static_cast<uint64_t>(std::count_if(clients_.begin(), clients_.end(),
                                               [](const auto &client) { return client.second.sends_data; }));
}

void Supervisor::AnswerAsk(Client &client, const CallPacket &call) {
    Job *job = jobs_.Find(call.key);
    // A job's first answer goes to those for whom it has run, with what it has cost.
    const bool is_new = !job || job->is_sent;
    if (is_new && AnswerFromCache(client, call.key)) {
        return;
    }
    if (job) {
        job->asked = now_;
    }
    if (job && job->state != JobState::UPLOADING) {
        AnswerAbout(client, *job, call.wait_ms);
        return;
    }
    if (jobs_.IsKnownSlow(call.request_hash, now_)) {
        Send(client, StatusPacket(ReplyStatus::TOO_SLOW, "the same request was too slow a moment ago"));
        return;
    }
    if (!job && !jobs_.HasRoom(ExpectedBytes())) {
        Send(client, StatusPacket(ReplyStatus::BUSY, "as many requests run and wait on this host as may"));
        return;
    }
    AnswerPacket answer;
    answer.kind = AnswerKind::SEND_DATA;
    answer.received_bytes = job ? job->received_bytes : 0;
    client.sends_data = true;
    Send(client, answer);
}

bool Supervisor::AnswerFromCache(Client &client, const CallKey &key) {
    const std::string *kept = cache_.Find(key);
    if (!kept) {
        return false;
    }
    OwnedFd file;
    try {
        file = MakeMemoryFile("rawduck-reply", *kept);
    } catch (const std::runtime_error &) {
        return false; // without memory for it, a job may be refused or wait
    }
    AnswerPacket answer;
    answer.kind = AnswerKind::REPLY;
    answer.reply_bytes = kept->size();
    Send(client, answer, file.Get());
    return true;
}

void Supervisor::AnswerHandOver(Client &client, const CallPacket &call, OwnedFd file) {
    // Another call may have brought the same piece, or all of them, since this one asked.
    Job *known = jobs_.Find(call.key);
    Job *job =
        known && known->state != JobState::UPLOADING ? known : jobs_.AddPiece(call, std::move(file), now_);
    if (job && job->state != JobState::UPLOADING) {
        GiveJobs();
        AnswerAbout(client, *job, call.wait_ms);
    } else if (job || known) {
        AnswerPacket answer;
        answer.kind = AnswerKind::SEND_DATA;
        answer.received_bytes = (job ? job : known)->received_bytes;
        Send(client, answer);
    } else {
        Send(client, StatusPacket(ReplyStatus::BUSY, "there is no room for the object's data"));
    }
}

void Supervisor::AnswerAbout(Client &client, Job &job, uint32_t wait_ms) {
    if (job.state == JobState::FINISHED) {
        Deliver(client, job);
        return;
    }
    const uint32_t expected_ms = jobs_.ExpectedMs(job, now_);
    if (wait_ms > 0 && expected_ms <= 2 * wait_ms) {
        client.waits = true;
        client.key = job.call.key;
        client.until = now_ + std::chrono::milliseconds(wait_ms);
        return;
    }
    AnswerPacket answer;
    answer.kind = AnswerKind::WORKING;
    answer.status = ReplyStatus::WORKING;
    // A bit early: the next call waits for the rest.
    answer.retry_ms = std::clamp(expected_ms - std::min(expected_ms, EARLY_MS), RETRY_MS_MIN, RETRY_MS_MAX);
    Send(client, answer);
}

void Supervisor::ForgetAnswer(const Client &client) {
    Job *job = client.was_answered ? jobs_.Find(client.key) : nullptr;
    if (job) {
        job->is_sent = false;
    }
}

void Supervisor::Deliver(Client &client, Job &job) {
    client.waits = false;
    client.was_answered = true;
    client.key = job.call.key;
    job.is_sent = true;
    Send(client, job.answer, job.reply ? job.reply.Get() : -1);
}

void Supervisor::Send(Client &client, const AnswerPacket &answer, int file) {
    const std::vector<int> files = file >= 0 ? std::vector<int>{file} : std::vector<int>();
    if (!SendPacket(client.socket.Get(), &answer, sizeof(answer), files)) {
        // Its entry goes with the event that the shutdown raises.
        shutdown(client.socket.Get(), SHUT_RDWR);
    }
}

void Supervisor::AnswerLateClients() {
    for (auto &entry : clients_) {
        Client &client = entry.second;
        if (!client.waits || now_ < client.until) {
            continue;
        }
        client.waits = false;
        Job *job = jobs_.Find(client.key);
        if (job) {
            AnswerAbout(client, *job, 0);
        } else {
            Send(client, StatusPacket(ReplyStatus::BUSY, "the job was dropped"));
        }
    }
}

void Supervisor::StartWorkers() {
    for (WorkerProcess &worker : workers_) {
        if (!worker.IsGone()) {
            continue;
        }
        if (failed_starts_ > FAILED_STARTS_MAX) {
            throw std::runtime_error("the workers do not start; what they said is above");
        }
        failed_starts_++;
        worker.Start(worker_main_);
        Watch(worker.Socket());
    }
}

void Supervisor::ServeWorker(WorkerProcess &worker) {
    ResultPacket result;
    OwnedFd reply;
    bool is_result = false;
    switch (worker.Take(result, reply, is_result)) {
    case Received::NOTHING:
        return;
    case Received::CLOSED:
        EndWorker(worker, ReplyStatus::FAILED, "the request has ended its worker process");
        return;
    case Received::PACKET:
        break;
    }
    failed_starts_ = 0;
    if (!is_result) {
        return;
    }
    AnswerPacket answer;
    answer.kind = AnswerKind::REPLY;
    answer.reply_bytes = result.reply_bytes;
    const auto status = static_cast<ReplyStatus>(result.status);
    const Job *job = jobs_.Find(worker.JobKey());
    if (job && status == ReplyStatus::TOO_SLOW) {
        jobs_.SetSlow(job->call.request_hash, now_);
    }
    if (job && status == ReplyStatus::OK && job->call.keeps_reply) {
        cache_.Keep(worker.JobKey(), reply.Get(), result.reply_bytes);
    }
    FinishJob(worker.JobKey(), answer, std::move(reply));
}

void Supervisor::EndWorker(WorkerProcess &worker, ReplyStatus status, const char *why) {
    const bool was_busy = worker.IsBusy();
    const CallKey key = worker.JobKey();
    if (now_ > logged_ + LOG_PAUSE) {
        logged_ = now_;
        std::fprintf(stderr, "rawduck-osd-helper: a worker is replaced: %s\n",
                     was_busy ? why : "it has ended");
    }
    worker.Kill();
    if (was_busy) {
        FinishJob(key, StatusPacket(status, why), OwnedFd());
    }
}

void Supervisor::FinishJob(const CallKey &key, AnswerPacket answer, OwnedFd reply) {
    Job *job = jobs_.Find(key);
    if (!job) {
        return;
    }
    jobs_.Finish(*job, answer, std::move(reply), now_);
    for (auto &entry : clients_) {
        if (entry.second.waits && entry.second.key == key) {
            Deliver(entry.second, *job);
        }
    }
    GiveJobs();
}

void Supervisor::GiveJobs() {
    for (WorkerProcess &worker : workers_) {
        Job *job = worker.IsReady() ? jobs_.NextQueued(now_) : nullptr;
        if (job && !worker.Give(*job)) {
            FinishJob(job->call.key, StatusPacket(ReplyStatus::FAILED, "the worker process has ended"),
                      OwnedFd());
        }
    }
}

void Supervisor::EndSlowJobs() {
    for (WorkerProcess &worker : workers_) {
        const Job *job = worker.IsBusy() ? jobs_.Find(worker.JobKey()) : nullptr;
        if (job && now_ >= jobs_.DeadlineOf(*job)) {
            jobs_.SetSlow(job->call.request_hash, now_);
            EndWorker(worker, ReplyStatus::TOO_SLOW, "the answer took longer than it may");
        }
    }
}

} // namespace rawduck_ceph
