//! The helper's own process: it listens, keeps the jobs, and watches over the workers. It has one thread and
//! no DuckDB instance, runs no query and looks at no byte of an object, so that no request can stop it.
#pragma once

#include "ceph/helper/supervisor/jobs.hpp"
#include "ceph/helper/supervisor/reply_cache.hpp"
#include "ceph/helper/supervisor/worker_process.hpp"

#include <map>

namespace rawduck_ceph {

struct SupervisorOptions {
    std::string directory; //!< where the socket is made
    //! Ends when no OSD has been connected for a while.
    bool end_when_unused = false;
    JobLimits jobs;
    uint64_t cache_bytes_max = 64ull << 20; //!< of replies that are kept
};

class Supervisor {
  public:
    Supervisor(const SupervisorOptions &options, WorkerMain worker_main);

    //! Listens; false when another helper does so in this directory. Throws std::runtime_error.
    bool Listen();
    //! Serves until the helper is not used any more. Throws std::runtime_error when workers do not start.
    void Serve();

  private:
    using Clock = HelperClock;

    //! An op thread of an OSD.
    struct Client {
        OwnedFd socket;
        bool sends_data = false;   //!< it was asked for data
        bool waits = false;        //!< for the job with this key, not longer than `until`
        bool was_answered = false; //!< with the reply of the job with this key, by the last packet
        CallKey key;
        Clock::time_point until;
    };

    void Watch(int fd);
    void Dispatch(int fd);
    void AcceptClients();
    //! Takes the packets of a client; false when it is gone or sent what no class sends.
    bool ServeClient(Client &client);
    void AnswerAsk(Client &client, const CallPacket &call);
    //! False, and nothing sent, when no reply is kept.
    bool AnswerFromCache(Client &client, const CallKey &key);
    void AnswerHandOver(Client &client, const CallPacket &call, OwnedFd file);
    //! The client is gone. It may not have seen the last answer: a class that waits too long closes its connection,
    //! and comes again.
    void ForgetAnswer(const Client &client);
    void AnswerAbout(Client &client, Job &job, uint32_t wait_ms);
    //! Sends the answer of a finished job.
    void Deliver(Client &client, Job &job);
    void Send(Client &client, const AnswerPacket &answer, int file = -1);

    void StartWorkers();
    void ServeWorker(WorkerProcess &worker);
    //! The worker is gone, or must be.
    void EndWorker(WorkerProcess &worker, ReplyStatus status, const char *why);
    void FinishJob(const CallKey &key, AnswerPacket answer, OwnedFd reply);
    void GiveJobs();
    void EndSlowJobs();
    void AnswerLateClients();
    int NextTimeoutMs();
    uint64_t ExpectedBytes() const;

    const SupervisorOptions options_;
    const WorkerMain worker_main_;
    OwnedFd lock_, listener_, epoll_;
    JobTable jobs_;
    ReplyCache cache_;
    std::map<int, Client> clients_; //!< by socket
    std::vector<WorkerProcess> workers_;
    uint32_t failed_starts_ = 0; //!< of workers, one after the other
    Clock::time_point used_;     //!< when a client was last connected
    Clock::time_point logged_;   //!< when a line was last written
    Clock::time_point now_;      //!< of the present events
};

} // namespace rawduck_ceph
