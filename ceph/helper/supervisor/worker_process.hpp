//! A worker: a process that runs one job at a time, and can be killed at any moment. Free of DuckDB.
#pragma once

#include "ceph/helper/supervisor/jobs.hpp"

#include <sys/types.h>

namespace rawduck_ceph {

//! What a worker process does, on its end of the socket to the helper. Does not return.
using WorkerMain = void (*)(int socket);

class WorkerProcess {
  public:
    WorkerProcess() = default;
    WorkerProcess(WorkerProcess &&) = default;
    WorkerProcess &operator=(WorkerProcess &&) = default;

    //! Forks. The calling process must have a single thread. Throws std::runtime_error.
    void Start(WorkerMain main);
    //! Ends it with SIGKILL. Does not wait: on a busy host it may take a while until it is gone.
    void Kill();
    //! Whether it was killed, or never started, and is gone now.
    bool IsGone();
    bool IsEnding() const { return !socket_; }
    //! Hands it a job. False when it is gone.
    bool Give(const Job &job);

    bool IsReady() const { return socket_ && ready_ && !busy_; }
    bool IsBusy() const { return busy_; }
    int Socket() const { return socket_.Get(); }
    const CallKey &JobKey() const { return job_; }
    //! Takes what it sent: that it is ready, or a job's result. NOTHING: it sent nothing. Ends it after its
    //! last result.
    Received Take(ResultPacket &result, OwnedFd &reply, bool &is_result);

  private:
    OwnedFd socket_;
    pid_t pid_ = 0;
    bool ready_ = false; //!< its DuckDB has started
    bool busy_ = false;
    CallKey job_;
};

} // namespace rawduck_ceph
