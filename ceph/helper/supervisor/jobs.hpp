//! The calls that the helper knows: being handed over, waiting, running, finished. Bounded in number and in
//! bytes. Free of DuckDB; used by one thread.
//!
//!   (unknown) --Add piece--> UPLOADING --last piece--> QUEUED --NextQueued--> RUNNING --Finish--> FINISHED
//!
//! A job is forgotten some time after its answer was sent, or when nobody has asked for it for a while: its
//! client has read the object itself, or is gone.
#pragma once

#include "ceph/channel/packets.hpp"

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace rawduck_ceph {

using HelperClock = std::chrono::steady_clock;

struct JobLimits {
    uint32_t workers = 2;
    //! Jobs that are handed over or wait, for each worker. More are refused as busy.
    uint32_t waiting_max_per_worker = 8;
    uint64_t data_bytes_max = 256ull << 20;  //!< of all objects that are here
    uint64_t reply_bytes_max = 128ull << 20; //!< of all finished replies
    size_t replies_max = 256;                //!< finished ones: each is an open file
    uint32_t time_ms_max = 10000;            //!< limits the request's own limit
    //! A worker ends a job in time by itself, unless one step of it takes long. It is killed after this time.
    std::chrono::milliseconds kill_after{50};
    //! A job that nobody asks for any more is dropped after this time.
    std::chrono::milliseconds forget_after{3000};
    //! A reply stays for this time after it was sent: its client may have waited too long, and come again.
    std::chrono::milliseconds keep_sent{100};
    //! A request that was too slow is refused for this time, on any object.
    std::chrono::milliseconds refuse_slow_for{30000};
};

struct JobPiece {
    OwnedFd file;
    uint64_t file_bytes = 0;
    uint32_t range_count = 0;
};

enum class JobState { UPLOADING, QUEUED, RUNNING, FINISHED };

struct Job {
    CallPacket call; //!< the first piece's
    JobState state = JobState::UPLOADING;
    std::vector<JobPiece> pieces;
    uint64_t received_bytes = 0; //!< data in the pieces
    bool is_sent = false;        //!< the answer
    HelperClock::time_point started, asked;
    AnswerPacket answer; //!< once FINISHED
    OwnedFd reply;       //!< with REPLY
};

class JobTable {
  public:
    explicit JobTable(const JobLimits &limits) : limits_(limits) {}

    Job *Find(const CallKey &key);
    //! Whether a new job may be handed over. `expected_bytes`: of pieces that others were asked to send.
    bool HasRoom(uint64_t expected_bytes) const;
    //! Adds a piece, and the job when it is the first one. Null, and nothing changed, when it does not follow
    //! the pieces before, when it is too large, or when the file is not what the packet says.
    Job *AddPiece(const CallPacket &call, OwnedFd file, HelperClock::time_point now);
    //! The oldest job that waits, now RUNNING; null for none.
    Job *NextQueued(HelperClock::time_point now);
    //! Makes the job's answer; its data are released. `reply`: with REPLY.
    void Finish(Job &job, AnswerPacket answer, OwnedFd reply, HelperClock::time_point now);
    void Expire(HelperClock::time_point now);

    //! Whether this request was too slow a while ago.
    bool IsKnownSlow(uint64_t request_hash, HelperClock::time_point now) const;
    void SetSlow(uint64_t request_hash, HelperClock::time_point now);
    //! How long the job probably takes until it is finished, in milliseconds.
    uint32_t ExpectedMs(const Job &job, HelperClock::time_point now) const;

    //! When the job's worker is killed.
    HelperClock::time_point DeadlineOf(const Job &job) const;
    size_t Count() const { return jobs_.size(); }
    uint64_t DataBytes() const { return data_bytes_; }
    uint64_t ReplyBytes() const { return reply_bytes_; }
    size_t Replies() const { return replies_; }

  private:
    using Jobs = std::map<CallKey, std::unique_ptr<Job>>;
    Jobs::iterator Erase(Jobs::iterator job);
    void ReleaseData(Job &job);
    //! Makes room for finished replies.
    void DropOldestReply();
    void CountReply(const Job &job, bool is_new);

    const JobLimits limits_;
    Jobs jobs_;
    std::vector<CallKey> queue_; //!< oldest first
    uint64_t data_bytes_ = 0;
    uint64_t reply_bytes_ = 0;
    size_t replies_ = 0;                                     //!< finished ones that are here
    std::map<uint64_t, HelperClock::time_point> slow_until_; //!< by request
    std::map<uint64_t, double> run_ms_;                      //!< by request: how long its jobs take
};

} // namespace rawduck_ceph
